"""Programs that people wrote, recorded on a CPU and told as on a GPU (`generators.told`): executions and layers."""

from __future__ import annotations

import pandas as pd
import pytest
from generators.machine import write
from told_score import answers_of, program_of

from xsp_post.pipeline import captures_of

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
    # two towers, an engine of prefills and tokens, a loader that computes, members of an ensemble
    ("clip_zero_shot", "all"), ("continuous_batching", "all"), ("graphormer_batches", "all"),
    ("nbeats_ensemble", "marks"),
    # recycles of proteins of other lengths, turns of one block, waits for each request of a batch, folds
    ("evoformer_recycling", "none"), ("raft_flow", "none"), ("lm_eval_harness", "none"), ("kfold_tabular", "marks"),
    # two networks in a row, boxes in any number, averaged weights, parts of a program, operators inside ranges
    ("eval_two_models", "marks"), ("detector_nms_video", "none"), ("parts_diffusion", "none"),
    ("rag_embed_rerank", "all"),
    # prefills of other lengths, parts of a block that have ranges
    ("continuous_batching", "none"), ("moe_batched", "all"),
    # pieces between graph breaks, a stem that holds most of the time, layers that begin otherwise than the first
    ("compiled_breaks", "all"), ("vlm_describe", "all"), ("evaluate_with_item", "none"),
    # convolutions of other shapes, gradients in the ranges of passes, lookups of neighbours
    ("gradcam_explain", "none"), ("pgd_adversarial", "marks"), ("tts_vocoder", "marks"),
    # layers that begin with a norm behind an embedding that ends as they do
    ("patchtst_epochs", "none"), ("patchtst_epochs", "marks"),
    # roll-outs in ranges of their own beside steps, steps that update nothing
    ("grpo_round", "all"), ("nmt_noam", "all"), ("schnet_md", "none"),
    # exits of requests, neighbours beside a key-value cache, prompts in chunks, actions, preferences, samples of a flow
    ("early_exit_requests", "all"), ("knn_lm", "none"), ("chunked_prefill", "none"), ("decision_transformer", "all"),
    ("dpo_preferences", "none"), ("realnvp_density", "all"), ("realnvp_density", "none"),
    # what begins alike and differs after it: closures in any number, sentences and requests of other lengths
    ("lbfgs_reconstruction", "none"), ("tts_vocoder", "none"), ("int8_requests", "none"),
    # chunks of a prompt in a range with operators, rows of blocks of one convolution
    ("chunked_prefill", "all"), ("convlstm_video", "none"), ("scripted_tagger", "marks"),
    # blocks of convolutions whose operators were recorded
    ("scripted_tagger", "all"), ("parts_diffusion", "all"), ("train_validate_checkpoint_train", "all"),
    ("ddpm_with_ema_and_preview", "all"),
    # a recommender that is tested after each epoch, candidates from a prompt that one pass checks
    ("sasrec_movielens", "none"), ("prompt_lookup_summaries", "marks"),
    # the launches say better what a step is than ranges that no text names: averaged weights, tests behind steps
    ("vit_finetune_amp", "all"), ("dpo_preferences", "marks"), ("sac_updates", "all"),
    ("gnn_full_batch", "all"), ("vqvae_epochs", "all"),
    # gradients whose operators were recorded lie in the range that covers them
    ("kfold_tabular", "all"), ("activation_patching", "all"),
    # passes in a range beside steps that count
    ("simclr_probe", "marks"),
    # tokens whose passes end with their layers
    ("whisper_chunks", "none"), ("whisper_chunks", "all"),
    # scans whose exps stand where a softmax does in other layers
    ("mamba_reference_scan", "none"),
    # layers of many launches that a head follows are of one pass: a prompt, a test behind steps
    ("mamba2_generate", "all"), ("mamba2_generate", "none"), ("graphgps_zinc", "all"),
    # convolutions of a network that runs several times in a step
    ("demucs_overlap", "none"), ("pcgrad_nyu", "none"), ("muzero_unroll", "none"),
    ("dqn_vector_env", "marks"),
    # every second layer has experts in a loop; layers of a graph network in the steps of a batch
    ("vmoe_eval", "all"), ("vmoe_eval", "none"), ("edm_molecules", "all"), ("edm_molecules", "marks"),
    # walks of samples inside steps, matrices rounded column by column, a grammar beside tokens, rows of tables
    ("ebm_langevin", "none"), ("gptq_blocks", "none"), ("json_decoder", "none"), ("perceiver_rows", "none"),
    # decisions that the host reads in a step, forecasts of several passes
    ("tsp_pomo", "marks"), ("weather_rollout", "all"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "ranges"), RIGHT)
def test_structure_of_told_programs(name, ranges, tmp_path):
    answers = answers_of(program_of(name, ranges), name, tmp_path)
    assert {answer.verdict for answer in answers.values()} == {"right"}, answers


@pytest.mark.parametrize(("name", "ranges"), [
    ("gnn_full_batch", "all"), ("gnn_full_batch", "none"), ("two_tower_recall", "none"), ("sweep_three_models", "none"),
    ("patchtst_epochs", "marks"), ("patchtst_epochs", "all"), ("vqvae_epochs", "none"),
    ("byol_ema", "marks"), ("byol_ema", "all"), ("slowfast_kinetics", "all"), ("bilstm_crf_ner", "all"),
    ("cyclegan_train", "all"), ("colbert_search", "marks"),
])  # fmt: skip
def test_tests_behind_steps_are_no_step(name, ranges, tmp_path):
    answers = answers_of(program_of(name, ranges), name, tmp_path)
    assert answers["executions"].verdict == "right", answers


@pytest.mark.parametrize("ranges", ["all", "marks", "none"])
def test_steps_begin_where_they_begin_anew_behind_other_work(ranges, tmp_path):
    answers = answers_of(program_of("splat_fit", ranges), "splat_fit", tmp_path)
    assert answers["executions"].verdict == "right", answers


READ_WRONGLY = {
    ("bench_attention", "none", "executions"): "each call of a timed loop is an execution, not each setting",
    ("grpo_round", "marks", "executions"): "a stage that is named once an iteration is no execution unless all are",
    ("sam_prompts", "all", "layers"): "operators of a decoder are no layers",
    ("pgd_adversarial", "all", "layers"): "a convolution with what follows it is a layer, in a step of six passes",
    ("neural_ode", "none", "layers"): "a field is evaluated four times in a step of its solver",
    ("gnn_full_batch", "none", "layers"): "layers begin with the lookup of neighbours",
    ("nerf_rays", "none", "layers"): "two networks of linear layers, one after the other",
    ("complex_kge", "marks", "executions"): "ranges of epochs hold many batches, and each batch is an execution",
    ("rwkv_generate", "none", "executions"): "a token of a prompt is one pass of three layers, though nothing waits",
    ("slowfast_kinetics", "none", "layers"): "residual blocks of two paths, turn by turn",
    ("yolov8_track_video", "none", "executions"): "the last frame has fewer turns of its loop over boxes, and is one",
    ("yolov8_track_video", "all", "layers"): "a convolution, its norm and its activation are a layer, not three",
    ("rnnt_transcribe", "none", "executions"): "a step of a search that calls an LSTM is one, as are those without",
    ("rnnt_transcribe", "all", "layers"): "layers of an encoder end before the steps of a search, which are none",
    ("cyclegan_train", "none", "layers"): "four networks of convolutions in one step",
    ("diffusers_text_to_image", "none", "layers"): "blocks of a network that goes down and up differ in shape",
    ("donut_parse_pages", "none", "executions"): "the pass of an encoder is one beside those of a decoder's tokens",
    ("embed_server", "none", "layers"): "embeddings with their norm are no layer",
    ("realesrgan_tiles", "none", "layers"): "blocks of three equal blocks each, in tiles of other shapes",
    ("efficientnet_bench", "marks", "executions"): "ranges of batch sizes hold seven timed calls each",
    ("ppocr_pages", "none", "executions"): "a page is one pass of a detector and one to three of a recogniser",
    ("pcgrad_nyu", "all", "executions"): "projected gradients stand between a step's backward work and its update",
    ("controlnet_lcm", "none", "layers"): "two networks that go down in each step, and a third that goes up, too",
    ("fedavg_rounds", "marks", "executions"): "a range of a client holds two or three steps, each with its update",
    ("simclr_probe", "all", "executions"): "steps of a classifier on kept features are no passes of the encoder",
    ("vivit_factorised", "all", "layers"): "a range beside steps with three passes holds their layers, too",
    ("dqn_vector_env", "none", "executions"): "two passes on the way to each update are three executions, not one",
    ("conformer_stream", "none", "layers"): "layers that end with what they begin with meet inside a loop of two turns",
    ("faces_gallery", "none", "layers"): "a residual block is a layer, not each of its two or three convolutions",
    ("proteinmpnn_design", "none", "layers"): "an encoder before many passes of a decoder has layers of its own",
    ("fid_reader", "none", "executions"): "a retriever and an encoder are two passes where the host waits between",
    ("deq_solver", "none", "layers"): "a cell is called once before the first turn of its solver",
    ("rvq_codec", "none", "layers"): "stages of a codec between two networks of convolutions",
    ("spiking_events", "none", "layers"): "a time step of three spiking layers is no layer",
}


@pytest.mark.xfail(strict=True, reason="known misses")
@pytest.mark.parametrize(("name", "ranges", "question"), READ_WRONGLY)
def test_told_programs_that_are_read_wrongly(name, ranges, question, tmp_path):
    answers = answers_of(program_of(name, ranges), name, tmp_path)
    assert answers[question].verdict == "right", READ_WRONGLY[name, ranges, question]


@pytest.mark.parametrize("name", [
    "clip_two_towers", "nerf_rays", "activation_checkpointing", "patchtst_epochs", "pgd_adversarial",
])  # fmt: skip
def test_own_ranges_hold_the_same_kernels_with_operators(name, tmp_path):
    marks = program_of(name, "marks")
    words = {row["text"] for row in marks.machines[0].ranges}
    counts = []
    for program in (marks, program_of(name, "all")):
        nodes = captures_of([write(program, tmp_path / f"own_{len(counts)}")]).frame("nodes")
        own = nodes[nodes["name"].isin(words) & ~nodes["is_inferred"]]
        counts.append(own.groupby(own["name"].astype(str))["kernel_count"].sum())
    pd.testing.assert_series_equal(*counts, check_dtype=False)


@pytest.mark.parametrize("name", ["mamba_reference_scan", "nerf_rays", "rwkv_generate"])
def test_programs_without_attention_are_not_said_to_have_it(name, tmp_path):
    nodes = captures_of([write(program_of(name, "none"), tmp_path / name)]).frame("nodes")
    assert not set(nodes["layer_type"].astype(str)) & {"attention", "transformer block"}
