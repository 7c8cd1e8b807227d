"""The example studies of published maps: what the papers found must come out of the model by itself."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def llama():
    return load("shortened_llama")


@pytest.fixture(scope="module")
def maps(llama):
    return llama.utilisation()


@pytest.fixture(scope="module")
def variants(llama):
    """Latency and fit of the original, width- and depth-pruned 7B on A100 and H100, over (variant, batch, length)."""
    out = {}
    for model, gpu, share in llama.CASES[1:3]:
        grid = llama.latency(model, gpu, share)
        out[gpu] = [grid[k].transpose("model.width_prune", "batch", "output").values for k in ("latency_s", "fits")]
    return out


def test_depth_pruning_cuts_latency_at_every_batch(variants):
    for latency, fits in variants.values():
        both = fits[0] & fits[2]
        assert both.sum() > 10
        assert (latency[2][both] < 0.85 * latency[0][both]).all()


def test_width_pruning_does_not_at_small_batch(variants):
    """Bound by the host's launches, a narrower model takes as long (FACTS: some 14 ms a token on A100 and H100)."""
    for latency, _ in variants.values():
        assert (latency[1][0] > 0.97 * latency[0][0]).all()
    latency, fits = variants["h100-sxm-80gb"]
    assert latency[1][-1][fits[0][-1]].max() < 0.9 * latency[0][-1][fits[0][-1]].max()  # at the largest batch it does


def test_utilisation_rises_with_batch_to_near_all(maps):
    busy, fits = maps.busy.values, maps.fits.values
    for case in range(4):
        for length in range(7):
            column = busy[case, :, length][fits[case, :, length]]
            assert (np.diff(column) > -0.01).all()
    large = busy[:, 7:, :][fits[:, 7:, :]]
    assert large.min() > 0.9 and large.max() <= 1


def test_memory_ends_where_it_must(maps):
    """OOM moves with memory: the 24 GB card ends first, 13B before 7B; weights and KV cache alone say who cannot."""
    oom = ~maps.fits.values
    small, a100, h100, large = (int(oom[i].sum()) for i in range(4))
    assert small > large > h100 >= a100
    kv = 2 * 32 * 4096 * 2  # bytes a token of LLaMA-7B: K and V, 32 layers, 4096 values of 2 bytes
    batch, length = np.meshgrid(maps.batch.values, maps.output.values, indexing="ij")
    least = 2 * 6.738e9 + kv * batch * (12 + length)
    for case, capacity in ((0, 24 * 2**30), (1, 80 * 2**30)):
        assert oom[case][least > capacity].all()


def test_printed_cells(llama, maps):
    """Utilisation at batch 128, length 128 as printed in the figure: within four points (read from a picture)."""
    for case, published in enumerate(llama.PRINTED[128]):
        assert 100 * maps.busy.values[case, 7, 3] == pytest.approx(published, abs=4)
    assert any("OOM" in line for line in llama.compare(maps))


def test_main_draws_every_picture(llama, tmp_path, capsys):
    llama.main(str(tmp_path))
    assert len(list(tmp_path.glob("*.png"))) == 5
    assert "cannot be" in capsys.readouterr().out


def test_shin_communication_and_memory(capsys):
    shin = load("shin_tables")
    grid = shin.table()
    volume, memory, fits = shin.sent(grid), shin.ordered(grid, "memory_bytes"), shin.ordered(grid, "fits")
    batches = np.array(shin.BATCHES)
    tensor, pipeline = volume[:, 0], volume[:, 1]
    assert np.allclose(tensor / tensor[:, :1], batches)  # linear in the batch
    # all-reduces of a request: 2 a layer, 2 (n-1)/n of 2-byte hidden values of each of the 128 + 127 tokens
    layers = 2 * 32 * 2 * 0.75 * (128 + 127) * 4096 * 2
    assert layers <= tensor[0, 0] < 1.05 * layers
    assert (pipeline < tensor / 10).all()
    assert (np.diff(memory, axis=-1) > 0).all()
    assert not fits[:, :, -1].any() and fits[:, :, 0].all()
    apart, fused = shin.ordered(grid, "latency_s")[:2]
    assert (apart[:, 1:] > fused[:, 1:]).all()  # fusion saves time; of one sequence only where the host bounds it
    assert apart[0, 0] > fused[0, 0]
    shin.main()
    assert "out of memory" in capsys.readouterr().out
