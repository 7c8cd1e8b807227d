"""A start as a file that deploys it: Docker Compose where its name begins so, else Kubernetes manifests."""

from __future__ import annotations

import json
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from rooflm.catalogue.devices import DATA
from rooflm.errors import RooflmError
from rooflm.search.serve_command import OPTIONS, Start

CACHE = "/root/.cache/huggingface"


def yaml_library() -> Any:
    """PyYAML; RooflmError where it is not installed."""
    try:
        import yaml
    except ImportError as error:
        raise RooflmError("a deployment file needs PyYAML: pip install 'rooflm[yaml]'") from error
    return yaml


@cache
def _asked() -> dict[str, dict[str, Any]]:
    return tomllib.loads((DATA / "deploy.toml").read_text(encoding="utf-8"))


def deployment_text(path: str, begun: Start, vendor: str, node: int) -> str:
    """The file's text. vendor: of the devices; node: how many of them one machine has. RooflmError for what no
    container of one machine runs."""
    c = begun.engine.command
    if not c.image:
        raise RooflmError(f"engine {begun.engine.name} has no container image that is known: --deploy needs one")
    if vendor.lower() not in _asked():
        raise RooflmError(f"no container of {vendor} devices is known: --deploy knows {', '.join(_asked())}")
    if begun.before is not None:
        raise RooflmError("--deploy writes servers of one kind: leave --pools out, or take the commands of both pools")
    if begun.gpus > node:
        raise RooflmError(
            f"the best answer takes {begun.gpus} GPUs a server, but --deploy writes files for one machine of {node}: "
            "use --gpus-max"
        )
    compose = re.match(r"(docker-)?compose", Path(path).name) is not None
    documents = [compose_document(begun, vendor)] if compose else manifests(begun, vendor)
    told = f"# {begun.note}\n" if begun.note else ""
    texts = [yaml_library().safe_dump(json.loads(json.dumps(d)), sort_keys=False, width=100) for d in documents]
    return told + "---\n".join(texts)


def _words(begun: Start) -> list[str]:
    """The server's words with what makes it reachable, its file of options at the root."""
    host = begun.engine.command.host.format(port=begun.engine.command.port)
    return [f"/{OPTIONS}" if word == OPTIONS else word for word in (*begun.words, *host.split())]


def _model(begun: Start) -> str:
    """The path of weights that are on this machine, "" where they come from the hub."""
    local = [w for w in begun.words if w.startswith(("./", "/", "~")) or w.lower().endswith(".gguf")]
    return local[0] if local else ""


def _name(begun: Start) -> str:
    return re.sub(r"[^a-z0-9]+", "-", begun.engine.name.lower()).strip("-")


def compose_document(begun: Start, vendor: str) -> dict[str, Any]:
    """Docker Compose: one service (or equal ones), its devices, cache and options."""
    c, asked, local = begun.engine.command, _asked()[vendor.lower()], _model(begun)
    words = [f"/weights/{Path(w).name}" if local and w == local else w for w in _words(begun)]
    service: dict[str, Any] = {
        "image": c.image,
        "entrypoint": words,
        "ports": [f"{c.port}:{c.port}"] if begun.replicas == 1 else [f"{c.port}"],
        "ipc": "host",
        "volumes": [f"{Path(local).parent}:/weights" if local else f"~/.cache/huggingface:{CACHE}"],
        "environment": ["HF_TOKEN=${HF_TOKEN:-}", *begun.environment],
    }
    deploy: dict[str, Any] = {"replicas": begun.replicas} if begun.replicas > 1 else {}
    if "driver" in asked:
        device = {"driver": asked["driver"], "count": begun.gpus, "capabilities": ["gpu"]}
        deploy["resources"] = {"reservations": {"devices": [device]}}
    else:
        service["devices"] = asked["files"]
    service |= {"deploy": deploy} if deploy else {}
    document: dict[str, Any] = {"services": {_name(begun): service}}
    if begun.options:
        service["configs"] = [{"source": "options", "target": f"/{OPTIONS}"}]
        document["configs"] = {"options": {"content": "\n".join(begun.options) + "\n"}}
    return document


def manifests(begun: Start, vendor: str) -> list[dict[str, Any]]:
    """Kubernetes: a Deployment, its Service, and a ConfigMap where the engine takes options by a file."""
    c, local, name = begun.engine.command, _model(begun), _name(begun)
    words = [f"/weights/{Path(w).name}" if local and w == local else w for w in _words(begun)]
    pairs = [e.partition("=") for e in begun.environment]
    token = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}}
    mounts = [{"name": "shm", "mountPath": "/dev/shm"},
              {"name": "weights", "mountPath": "/weights" if local else CACHE}]  # fmt: skip
    volumes: list[dict[str, Any]] = [
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "weights", "hostPath": {"path": str(Path(local).resolve().parent)}} if local
        else {"name": "weights", "emptyDir": {}},
    ]  # fmt: skip
    first: list[dict[str, Any]] = []
    if begun.options:
        mounts.append({"name": "options", "mountPath": f"/{OPTIONS}", "subPath": OPTIONS})
        volumes.append({"name": "options", "configMap": {"name": f"{name}-options"}})
        first = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-options"},
                  "data": {OPTIONS: "\n".join(begun.options) + "\n"}}]  # fmt: skip
    container = {
        "name": name, "image": c.image, "command": words, "ports": [{"containerPort": c.port}],
        "env": [token, *({"name": k, "value": v} for k, _, v in pairs)],
        "resources": {"limits": {_asked()[vendor.lower()]["resource"]: begun.gpus}},
        "readinessProbe": {"httpGet": {"path": c.health, "port": c.port}, "periodSeconds": 10,
                           "failureThreshold": 360},
        "volumeMounts": mounts,
    }  # fmt: skip
    labels = {"app": name}  # JSON in between, so that no part of the file points at another
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [container], "volumes": volumes}}
    return [
        *first,
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
         "spec": {"replicas": begun.replicas, "selector": {"matchLabels": labels}, "template": pod}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
         "spec": {"selector": labels, "ports": [{"port": c.port, "targetPort": c.port}]}},
    ]  # fmt: skip
