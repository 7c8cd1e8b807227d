"""A start as a file that deploys it: Docker Compose where its name begins so, else Kubernetes manifests."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from rooflm.errors import RooflmError
from rooflm.readers.command import command_of
from rooflm.readers.rows import shipped
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
    return shipped("deploy", dict[str, dict[str, Any]])


ROUTER_PORT = 9000
"""Port of what stands in front of pools."""


class Server(NamedTuple):
    """One server of a deployment: its name, how it starts, and the first of its devices."""

    name: str
    begun: Start
    first: int


def servers(begun: Start) -> list[Server]:
    """Every server, its devices counted from 0: of pools, prefill servers first."""
    plain = _name(begun)
    kinds = [(plain, begun)] if begun.before is None else [("prefill", begun.before), ("decode", begun)]
    names = [(kind if start.replicas == 1 and kind == plain else f"{kind}-{i}", start)
             for kind, start in kinds for i in range(start.replicas)]  # fmt: skip
    ends = list(accumulate((start.gpus for _, start in names), initial=0))
    return [Server(name, start, first) for (name, start), first in zip(names, ends, strict=False)]


def deployment_text(path: str, begun: Start, vendor: str, node: int, apart: bool = False) -> str:
    """The file's text. vendor: of the devices; node: how many of them one machine has; apart: the prefill servers run
    on another card. RooflmError for what no container of one machine runs."""
    c, compose = command_of(begun.engine), re.match(r"(docker-)?compose", Path(path).name) is not None
    if not c.image:
        raise RooflmError(f"engine {begun.engine.name} has no container image that is known: --deploy needs one")
    if vendor.lower() not in _asked():
        raise RooflmError(f"no container of {vendor} devices is known: --deploy knows {', '.join(_asked())}")
    if apart:
        raise RooflmError("--deploy writes servers of one kind of card: leave --prefill-gpu out, or take the commands")
    each = servers(begun)
    most = each[-1].first + each[-1].begun.gpus if compose else max(s.begun.gpus for s in each)
    if most > node:
        what = "takes" if compose else "takes a server"
        raise RooflmError(
            f"the best answer {what} {most} GPUs, but --deploy writes files for one machine of {node}: use --gpus-max"
            + (", or a Kubernetes file" if compose and max(s.begun.gpus for s in each) <= node else "")
        )
    documents = [compose_document(begun, vendor)] if compose else manifests(begun, vendor)
    told = f"# {begun.note}\n" if begun.note else ""
    texts = [yaml_library().safe_dump(json.loads(json.dumps(d)), sort_keys=False, width=100) for d in documents]
    return told + "---\n".join(texts)


def _words(begun: Start) -> list[str]:
    """The server's words with what makes it reachable, its file of options at the root."""
    host = command_of(begun.engine).host.format(port=command_of(begun.engine).port)
    return [f"/{OPTIONS}" if word == OPTIONS else word for word in (*begun.words, *host.split())]


def _model(begun: Start) -> str:
    """The path of weights that are on this machine, "" where they come from the hub."""
    return next(filter(_local, begun.words), "")


def _local(word: str) -> bool:
    """Whether a word of a command is a path of weights."""
    return (word.startswith(("./", "/", "~")) and word != f"/{OPTIONS}") or word.lower().endswith(".gguf")


def _name(begun: Start) -> str:
    return re.sub(r"[^a-z0-9]+", "-", begun.engine.name.lower()).strip("-")


def _own_environment(begun: Start) -> list[str]:
    """Variables of a server: those of its command, and of a pool's."""
    pool = command_of(begun.engine).pool_env.split("\n") if begun.role else []
    return [*begun.environment, *(line for line in pool if line)]


def compose_document(begun: Start, vendor: str) -> dict[str, Any]:
    """Docker Compose: a service a server, with devices of its own, cache and options; and of pools their router."""
    c, asked, each = command_of(begun.engine), _asked()[vendor.lower()], servers(begun)
    document: dict[str, Any] = {"services": {}}
    for i, (name, start, first) in enumerate(each):
        local = _model(start)
        service: dict[str, Any] = {
            "image": c.image,
            "entrypoint": [f"/weights/{Path(w).name}" if _local(w) else w for w in _words(start)],
            **({} if begun.before else {"ports": [f"{c.port + i}:{c.port}"]}),
            "ipc": "host",
            "volumes": [f"{Path(local).parent}:/weights" if local else f"~/.cache/huggingface:{CACHE}"],
            "environment": ["HF_TOKEN=${HF_TOKEN:-}", *(e.format(host=name) for e in _own_environment(start))],
        }
        if "driver" in asked:
            own = (
                {"device_ids": [str(first + k) for k in range(start.gpus)]} if len(each) > 1 else {"count": start.gpus}
            )
            device = {"driver": asked["driver"], **own, "capabilities": ["gpu"]}
            service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
        else:
            service["devices"] = asked["files"]
            numbers = ",".join(str(first + k) for k in range(start.gpus))
            service["environment"] += [f"{asked['visible']}={numbers}"][: len(each) > 1]
        if start.options:
            kind = f"{start.role}-options".lstrip("-")
            service["configs"] = [{"source": kind, "target": f"/{OPTIONS}"}]
            document.setdefault("configs", {})[kind] = {"content": "\n".join(start.options) + "\n"}
        document["services"][name] = service
    if begun.before:
        document["services"]["router"] = {"image": c.image, "entrypoint": _router(begun, each),
                                          "ports": [f"{ROUTER_PORT}:{ROUTER_PORT}"],
                                          "depends_on": [s.name for s in each]}  # fmt: skip
    return document


def _router(begun: Start, each: Sequence[Server]) -> list[str]:
    """The words of the container in front of pools."""
    named = [[s.name for s in each if s.begun.role == role] for role in ("prefill", "decode")]
    return ["sh", "-c", begun.router(*named)]


def manifests(begun: Start, vendor: str) -> list[dict[str, Any]]:
    """Kubernetes: a Deployment and its Service; of pools one of each a server, and the router's."""
    c = command_of(begun.engine)
    if begun.before is None:
        return _manifest(_name(begun), begun, vendor, begun.replicas)
    each = servers(begun)
    documents = [d for s in each for d in _manifest(s.name, s.begun, vendor, 1)]
    container = {"name": "router", "image": c.image, "command": _router(begun, each),
                 "ports": [{"containerPort": ROUTER_PORT}]}  # fmt: skip
    return [*documents, *_workload("router", {"containers": [container]}, 1, ROUTER_PORT)]


def _workload(name: str, pod: dict[str, Any], replicas: int, port: int) -> list[dict[str, Any]]:
    """A Deployment of a pod and the Service by whose name it is reached."""
    labels = {"app": name}  # JSON in between, so that no part of the file points at another
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
         "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
                  "template": {"metadata": {"labels": labels}, "spec": pod}}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
         "spec": {"selector": labels, "ports": [{"port": port, "targetPort": port}]}},
    ]  # fmt: skip


def _variable(text: str) -> dict[str, Any]:
    """A variable of a container; one that is its own address asks the cluster for it."""
    name, _, value = text.partition("=")
    if value == "{host}":
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    return {"name": name, "value": value}


def _manifest(name: str, begun: Start, vendor: str, replicas: int) -> list[dict[str, Any]]:
    """Equal servers: a Deployment, its Service, and a ConfigMap where the engine takes options by a file."""
    c, local = command_of(begun.engine), _model(begun)
    words = [f"/weights/{Path(w).name}" if _local(w) else w for w in _words(begun)]
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
        "env": [token, *map(_variable, _own_environment(begun))],
        "resources": {"limits": {_asked()[vendor.lower()]["resource"]: begun.gpus}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": c.port}, "periodSeconds": 10,
                           "failureThreshold": 360},
        "volumeMounts": mounts,
    }  # fmt: skip
    return [*first, *_workload(name, {"containers": [container], "volumes": volumes}, replicas, c.port)]
