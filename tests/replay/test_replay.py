"""Stored outputs of some 230 scenarios stay what they were (see bank.py)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import bank


def test_nothing_moved() -> None:
    stored = json.loads(bank.STORE.read_text())
    wanted = dict(bank.scenarios())
    assert stored.keys() == wanted.keys(), "scenarios were added or removed: run python tests/replay/bank.py --update"
    changes = {name: bank.moved(stored[name], bank.outputs(arguments)) for name, arguments in wanted.items()}
    changed = {name: change for name, change in changes.items() if change}
    shown = "\n".join(f"{name}: {'; '.join(change)}" for name, change in list(changed.items())[:10])
    assert not changed, (
        f"{len(changed)} scenarios moved; if on purpose, say why in docs/decisions and run bank.py --update\n{shown}"
    )
