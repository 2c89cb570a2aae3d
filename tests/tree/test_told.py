"""Programs that people wrote, recorded on a CPU and told as on a GPU (`generators.told`): executions and layers."""

from __future__ import annotations

import pytest
from told_score import answers_of, program_of

RIGHT = (
    # of training: micro-steps, an optimiser that holds most of the time, recomputed blocks, two towers
    ("gpt_grad_accum", "none"), ("distillation", "all"), ("activation_checkpointing", "all"),
    ("clip_two_towers", "marks"),
    # gradients inside the last range of a step, closures in an optimiser's step, tests behind the last step
    ("maml_sinusoids", "all"), ("lbfgs_reconstruction", "all"), ("resnet_finetune_loader", "all"),
    # two optimisers, roll-outs beside steps, a small network, two models, a thread that makes batches, two programs
    ("dcgan_two_d_steps", "all"), ("ppo_cartpole_like", "all"), ("pinn_burgers", "none"), ("two_models", "none"),
    ("threaded_server", "all"), ("parts_frames_train_evaluate", "none"),
    # of inference: batches of other lengths, requests of a prefill and tokens, packed sequences, a draft and its check
    ("bert_ragged_embedding", "none"), ("gpt_sampling_requests", "marks"), ("lstm_ctc", "none"),
    ("speculative_decoding", "all"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "ranges"), RIGHT)
def test_structure_of_told_programs(name, ranges, tmp_path):
    answers = answers_of(program_of(name, ranges), name, tmp_path)
    assert {answer.verdict for answer in answers.values()} == {"right"}, answers


def test_tests_behind_the_last_step_are_no_step(tmp_path):
    answers = answers_of(program_of("gnn_full_batch", "all"), "gnn", tmp_path)
    assert answers["executions"].verdict == "right", answers


READ_WRONGLY = {
    ("compiled_breaks", "all"): "pieces between graph breaks are no executions",
    ("gnn_full_batch", "none"): "epochs between two tests are executions, each",
}


@pytest.mark.xfail(strict=True, reason="known misses")
@pytest.mark.parametrize(("name", "ranges"), READ_WRONGLY)
def test_told_programs_that_are_read_wrongly(name, ranges, tmp_path):
    answers = answers_of(program_of(name, ranges), name, tmp_path)
    assert answers["executions"].verdict == "right", READ_WRONGLY[name, ranges]
