"""docs/schema/*.json out of what fields say of themselves: python -m rooflm_fit.schema"""

from __future__ import annotations

import json
from pathlib import Path

from rooflm.cli.schemas import SCHEMAS, schema

FOLDER = Path(__file__).parents[2] / "docs" / "schema"


def texts() -> dict[Path, str]:
    """File -> its text."""
    return {FOLDER / f"{kind}.json": json.dumps(schema(kind), indent=1, ensure_ascii=False) + "\n" for kind in SCHEMAS}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")
