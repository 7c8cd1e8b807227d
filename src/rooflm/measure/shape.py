"""The shape of a Llama-like decoder as a short text: what a results file keeps of a model, enough to predict it."""

from __future__ import annotations

from typing import Any, NamedTuple

from rooflm.asked.checks import whole
from rooflm.catalogue.model import MLP, Attention, Block, Model
from rooflm.errors import RooflmError


class Shape(NamedTuple):
    """Sizes of a decoder of equal layers with gated feed-forward, rotary embedding and RMS norms."""

    hidden: int
    vocab: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    tied: int = 0
    qkv_bias: int = 0
    qk_norm: int = 0

    def text(self) -> str:
        """The shape as `name=value` pairs.

        >>> Shape(576, 49152, 30, 9, 3, 64, 1536, 1).text()
        'hidden=576 vocab=49152 layers=30 heads=9 kv_heads=3 head_dim=64 width=1536 tied=1 qkv_bias=0 qk_norm=0'
        """
        return " ".join(f"{k}={v}" for k, v in self._asdict().items())

    def model(self, name: str = "measured") -> Model:
        """The model that predictions take.

        >>> int(Shape(576, 49152, 30, 9, 3, 64, 1536, 1).model().parameters)
        134515008
        """
        mixer = Attention(
            self.heads, self.kv_heads, self.head_dim, bias=bool(self.qkv_bias), qk_norm=bool(self.qk_norm)
        )
        block = Block(self.layers, mixer, MLP(self.width))
        return Model(name, self.hidden, self.vocab, (block,), tied=bool(self.tied))


def parse(text: str) -> Shape:
    """A Shape from its text.

    >>> parse(Shape(64, 100, 2, 4, 2, 16, 128).text()).kv_heads
    2
    """
    try:
        shape = Shape(**{k: int(v) for k, v in (pair.split("=") for pair in text.split())})
        flags = ("tied", "qkv_bias", "qk_norm")
        for name, value in shape._asdict().items():
            whole(f"shape: {name}", value, 0 if name in flags else 1)
        return shape
    except RooflmError:
        raise
    except (TypeError, ValueError) as error:
        raise RooflmError(f"shape is {text!r}, but it must be pairs such as hidden=576 layers=30") from error


def of_model(model: Model) -> Shape:
    """The Shape of a catalogue model, if it is Llama-like; RooflmError otherwise."""
    m = model.scaled
    block = m.blocks[0]
    mixer, ffn = block.mixer, block.ffn
    plain = len(m.blocks) == 1 and isinstance(mixer, Attention) and isinstance(ffn, MLP)
    if not plain or not isinstance(mixer, Attention) or not isinstance(ffn, MLP) or not ffn.gated or m.norm != "rms":
        raise RooflmError(f"{model.name} is no plain Llama-like decoder: give a Hugging Face folder or config.json")
    numbers: list[Any] = [m.hidden, m.vocab, block.count, mixer.heads, mixer.kv_heads, mixer.head_dim, ffn.width]
    sizes = dict(zip(Shape._fields, (int(x) for x in numbers), strict=False))
    return Shape(**sizes, tied=int(m.tied), qkv_bias=int(mixer.bias), qk_norm=int(mixer.qk_norm))
