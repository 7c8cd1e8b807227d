"""Published rows that their own source contradicts: stated in advance, never fitted, scored in a table apart."""

from __future__ import annotations

from rooflm.validation.request import Request

NO_OVERLAP = "70B in 4 bits over four cards reads prompts as slowly as over two, where its other rows overlap stages"
FIRST_TOKEN = "time to first token contradicts the latency of whole requests of the same runs"


def distrusted(r: Request) -> str:
    """Why a row is not to be trusted; "" for all others.

    llama.cpp (XiongjieDai): the prompts of Llama-3-70B Q4_K_M over four cards. Argonne: times to first token on
    MI300X.
    """
    four = r.source == "llamacpp-multi" and r.metric == "prefill_tokens_per_s" and r.kwargs["pp"] == 4
    if four and "70b" in r.group[0] and str(r.kwargs["quant"]).startswith("q4"):
        return NO_OVERLAP
    if r.source == "argonne-amd" and r.group[1] == "mi300x" and r.metric == "ttft":
        return FIRST_TOKEN
    return ""
