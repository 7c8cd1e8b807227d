"""The machine that arguments name, and what an hour of it costs: rented at the catalogue's price or the one given, or
owned."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping as Dict
from dataclasses import replace
from typing import Any

import numpy as np

from rooflm.asked.arguments import defaults
from rooflm.asked.checks import amount
from rooflm.asked.purchase import DUTY, YEARS, owned_hour, purchase
from rooflm.catalogue.hardware import Cluster, Device
from rooflm.errors import RooflmError
from rooflm.readers.devices import ANY_DEVICE, default_cluster, load_cluster, load_device, parts_of, usual_cluster
from rooflm.readers.prices import GIVEN, OWN
from rooflm.readers.prices import price_note as told_prices
from rooflm.readers.rows import is_path, resolve
from rooflm.readers.tables import is_array
from rooflm.shown.numbers import plain_number
from rooflm.units import Num


def find_cluster(gpu: str | Device | None, cluster: str | Cluster | None) -> tuple[Cluster, list[str]]:
    """The cluster of a device, or a given cluster with its own or the given device; and what was assumed."""
    if cluster:
        device = load_device(gpu) if isinstance(gpu, str) else gpu
        if isinstance(cluster, Cluster):
            return cluster if device is None else replace(cluster, device=device), []
        machine = load_cluster(cluster, device)
        return machine, elsewhere(gpu, cluster) if isinstance(gpu, str) else []
    if isinstance(gpu, str) and not is_path(gpu) and _is_instance(gpu):
        return load_cluster(gpu), [f"cluster {parts_of(gpu)[0]}"]
    if not gpu:
        raise RooflmError("gpu is missing: name a GPU, such as h100 (see `rooflm list gpus`), or a cluster")
    name = default_cluster(gpu) if isinstance(gpu, str) else usual_cluster(gpu)
    machine = load_cluster(name, gpu)
    inferred = [f"{machine.device.name} {machine.device.inferred}"] if machine.device.inferred else []
    return machine, [f"cluster {name}", *inferred]


def _is_instance(name: str) -> bool:
    """Whether a name is that of an instance or a machine with cards of its own, and of no card.

    >>> _is_instance("p5.48xlarge"), _is_instance("Azure ND H100 v5"), _is_instance("h100"), _is_instance("pcie4-8")
    (True, True, False, False)
    """
    try:
        resolve("gpu", name)
    except RooflmError:
        try:
            return parts_of(resolve("cluster", name))[1] != ANY_DEVICE
        except RooflmError:
            return False
    return False


def elsewhere(gpu: str, cluster: str) -> list[str]:
    """What is assumed of a card in a machine that is another card's: the machine's links, whatever the card has.

    >>> elsewhere("a100", "dgx-h100"), elsewhere("a100", "dgx-a100"), elsewhere("a100", "pcie4-8")
    (['a100-sxm-80gb on the links of dgx-h100, a machine of h100-sxm-80gb'], [], [])
    """
    (name, own, _), card = parts_of(cluster), load_device(gpu).name
    same = own in (ANY_DEVICE, card) or name == default_cluster(gpu)
    return [] if same else [f"{card} on the links of {name}, a machine of {own}"]


def priced(machine: Cluster, given: Dict[str, Any], assumed: list[str]) -> Cluster:
    """The cluster with the price of an hour of its device (USD): the one given, or the cost of an owned device
    (`purchase.owned_hour`)."""
    device, price, owned = machine.device, given["price"], given["owned"] or given["purchase"] is not None
    basis = GIVEN
    if price is not None and owned:
        raise RooflmError("price is the rent of an hour, purchase and owned are of one's own GPUs: give one of them")
    if owned:
        usd, each = given["purchase"], amount("electricity", given["electricity"])
        listing = purchase(device.name)
        if usd is None and listing is None:
            raise RooflmError(f"no public purchase price of {device.name} is known: give it with --purchase, in USD")
        paid = listing.usd if usd is None and listing else amount("purchase", usd, above=True)
        price = owned_hour(paid, device.tdp, each)
        price_text = listing.told if usd is None and listing else "" if is_array(paid) else f"{paid:,.6g} USD"
        basis = f"{OWN}, bought for {price_text}" if price_text else OWN
        assumed.append(own_terms(each))
    if price is None:
        return machine
    return replace(machine, device=replace(device, price=amount("price", price), priced=basis))


def prices_told(gpus: Iterable[str | Device | None], cluster: Any, *given: Dict[str, Any]) -> str:
    """What costs on these GPUs rest on, where the arguments of money are one each. given: those of all of the GPUs,
    then those of one more card each, with its `gpu`."""
    cards = [*((g, given[0]) for g in gpus), *((pool["gpu"], pool) for pool in given[1:])]
    return told_prices(priced(find_cluster(g, cluster)[0], _money(asked), []).device for g, asked in cards)


def _money(given: Dict[str, Any]) -> Dict[str, Any]:
    """Every argument of what an hour costs, those not given as they are by default."""
    usual = defaults("infer")
    names = ("price", "owned", "purchase", "electricity")
    asked = {k: usual[k] if given.get(k) is None else given[k] for k in names}
    return asked | {"price": (given.get("sets") or {}).get("cluster.device.price", asked["price"])}


def own_terms(electricity: Num) -> str:
    """How the cost of an hour of an owned GPU comes about, in words; for lists, what all share."""
    each = "" if is_array(electricity) else f", electricity {plain_number(electricity)} USD a kWh at full power"
    return f"GPUs used for {YEARS:g} years {100 * DUTY:g} % of the time{each}, without the rest of the machine"


def node_size(cluster: Cluster) -> int:
    """Devices that the nearest tier joins, or of one machine if those are more (1 without a network).

    >>> [node_size(load_cluster(name)) for name in ("dgx-h100", "h100-pcie-box", "gb200-nvl72")]
    [8, 8, 72]
    """
    nearest = int(np.min(np.asarray(cluster.tiers[0].size))) if cluster.tiers else 1
    return max(nearest, int(np.min(np.asarray(cluster.machine))))


def machine_size(cluster: Cluster) -> int:
    """Devices that one host starts: of a rack behind one NVLink switch those of a tray.

    >>> [machine_size(load_cluster(name)) for name in ("dgx-h100", "h100-pcie-box", "gb200-nvl72")]
    [8, 8, 4]
    """
    return int(np.min(np.asarray(cluster.machine))) or node_size(cluster)


def rented_together(cluster: Cluster) -> int:
    """Devices that a search looks at unless told how many: a node's, or one machine's where no node joins several.

    >>> [rented_together(find_cluster(card, None)[0]) for card in ("h100", "gb200", "m3-max")]
    [8, 72, 1]
    """
    return machine_size(cluster) if node_size(cluster) >= FABRIC else node_size(cluster)


FABRIC = 2**20
"""Size of a tier that takes any number of devices: a network between machines."""


def called_of(gpus: Iterable[Any]) -> str:
    """What an answer calls one of these devices, by name or as they are: "GPU" unless all are of another kind.

    >>> called_of(["epyc-9654", "tpu-v5e"]), called_of(["epyc-9654", "h100"]), called_of([None])
    ('device', 'GPU', 'GPU')
    """
    devices = (find_cluster(g, None)[0].device if isinstance(g, str) else g for g in set(gpus))
    words = {getattr(device, "called", "GPU") for device in devices}
    return str(words.pop()) if len(words) == 1 else "GPU"
