"""python -m rooflm_fit.convert OLD.csv NEW.csv"""

from rooflm_fit.convert.tables import main

raise SystemExit(main())
