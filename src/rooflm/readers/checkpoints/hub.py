"""A model by its Hugging Face id: from the hub's local cache without a network, else through huggingface_hub.

What is read of a repository is its config.json (with hf_quant_config.json and modules.json beside it) or
adapter_config.json. Source of the cache's layout: huggingface_hub's "Understand caching" (models--ORG--NAME/refs,
/snapshots).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

CONFIGS = ("config.json", "adapter_config.json")
BESIDE = ("hf_quant_config.json", "modules.json")
_ID = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")


def is_id(name: str) -> bool:
    """True for what can be a repository's id: an owner and a name.

    >>> is_id("Qwen/Qwen3-8B"), is_id("qwen3-8b"), is_id("a/b/c")
    (True, False, False)
    """
    return _ID.fullmatch(name) is not None and ".." not in name


def cache() -> Path:
    """The folder of the hub's cache, by its own variables in its own order."""
    direct = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if direct:
        return Path(direct).expanduser()
    home = os.environ.get("HF_HOME")
    folder = Path(home) if home else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return folder.expanduser() / "hub"


def cached(name: str) -> Path | None:
    """The folder of the newest snapshot of a repository in the local cache that holds a config; None without one."""
    folder = cache() / f"models--{name.replace('/', '--')}"
    main = folder / "refs" / "main"
    listed = sorted((folder / "snapshots").glob("*"), key=lambda p: p.stat().st_mtime, reverse=True)
    if main.is_file():
        wanted = main.read_text(encoding="utf-8", errors="replace").strip()
        listed.sort(key=lambda p: p.name != wanted)
    return next((p for p in listed if any((p / c).is_file() for c in CONFIGS)), None)


PATIENCE = 3.0
"""s to wait for the hub's machine to answer at all, before its library tries again and again."""


def reachable() -> bool:
    """Whether the hub accepts a connection. Assumed to be true behind a proxy, since only the proxy can know."""
    import socket

    known = ("https_proxy", "http_proxy", "all_proxy")
    if any(os.environ.get(k) or os.environ.get(k.upper()) for k in known):
        return True
    parts = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    try:
        port = parts.port or (80 if parts.scheme == "http" else 443)
        socket.create_connection((parts.hostname or "", port), PATIENCE).close()
    except (OSError, ValueError):
        return False
    return True


def fetched(name: str) -> tuple[Path | None, str]:
    """The folder of a repository's config as downloaded by huggingface_hub, and the reason if the download failed."""
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        return None, "without rooflm[hub] its config.json is not fetched"
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON")
    if not offline and not reachable():
        return None, "the hub cannot be reached from here"
    failed = ""
    for config in CONFIGS:
        try:
            found = Path(hub.hf_hub_download(name, config))
        except Exception as error:  # its own errors, and those of whatever HTTP library it uses
            failed = failed or type(error).__name__
            continue
        for file in BESIDE:
            with contextlib.suppress(Exception):  # most repositories have none
                hub.hf_hub_download(name, file)
        return found.parent, ""
    return None, "HF_HUB_OFFLINE keeps rooflm from asking the hub" if offline else f"the hub gave none ({failed})"
