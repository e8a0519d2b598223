//! octorec trains deep recommenders (DLRM and its relatives) on CPU servers.
//!
//! This page is the map of the house: how one minibatch walks through it, which floors there are, and the rules that
//! `tests/machine/house.rs` holds. The README is the front page for users.
//!
//! # The walk of one minibatch
//! `train/step.rs` is the corridor; each of 1 to n ranks ([`exchange::RankContext`]) walks it with its own slice of the
//! minibatch ([`exchange::Minibatch`]), in this order (what time is booked on is a [`model::Stage`]; those of hot rows
//! are in `train/hot_step.rs`):
//!
//! | stage                                        | floor         |
//! |----------------------------------------------|---------------|
//! | read the slice                               | [`data`]      |
//! | ids of rows, to the ranks that own them      | [`exchange`]  |
//! | look up and pool rows: for other ranks into their windows, for own samples into the features | [`embedding`] |
//! | bottom MLP, while pooled rows travel         | [`model`], made of [`layer`]s |
//! | pooled rows of other ranks, to their places  | [`exchange`]  |
//! | interaction, top MLP, loss                   | [`model`]     |
//! | backward, layer by layer; the reduction of each layer's gradient over ranks begins as soon as it is complete | [`model`], [`collective`] |
//! | gradients of pooled rows, to the owners, while the bottom MLP runs back | [`exchange`] |
//! | backward and update of rows; sums of hot rows' gradients before, hot rows that moved to all copies after | [`embedding`], [`exchange`] |
//! | update of dense weights, where they were reduced | [`optim`] |
//!
//! The network takes a slice part by part ([`math::Parts`]), each from its own look-ups to the loss and back, so that
//! activations stay in the caches; ids, rows for other ranks and all gradients go for the whole slice at once. A rank
//! that is alone has no peers: it exchanges nothing, copies nothing and waits for nobody. Which inputs come next, where
//! hot and cold ones take turns, is `train/order.rs`'s. How dense gradients are reduced (alone, by the compute threads,
//! by communication threads behind the backward pass, or in an order that does not depend on ranks) is one of the
//! implementations in `train/reduction`. A network is known by the trait [`model::Network`], what carries messages by
//! [`collective::Carrier`], how a weight moves by [`optim::Rule`]: the corridor is the same for all of them.
//!
//! # Floors
//! A module may use floors above it in this table, never one below. ⚠ marks the rooms in which `unsafe` may stand.
//!
//! | floor       |   | what is there |
//! |-------------|---|---------------|
//! | `base`      |   | ids, units, errors, the counter-based generator, configuration and presets, what is printed |
//! | `ffi`       | ⚠ | libnuma, MPI, and the Linux calls that place threads and pages, divide processes and take signals: thin and typed |
//! | `memory`    | ⚠ | one arena a rank, bound and verified; zeroed buffers on huge pages; files, mapped, read in pieces, or replaced as a whole, by several machines where the file system allows that; streams, which are written to as they are; a folder's lock; the process's control groups |
//! | `simd`      | ⚠ | one vector interface; scalar, AVX2, AVX-512 and AVX512-BF16 twins; AMX tiles; bfloat16, halves, thirds; dispatch |
//! | `sync`      | ⚠ | fork-join regions, the disjoint pieces that they hand out, rows under locks; windows, barriers, jobs of ranks; loom-checked |
//! | `machine`   |   | machines as data, discovery, links as inferred and as a graph, routes, placement of ranks, pictures of all that, and what shares them; the thread team; measured limits, and figures of whole machines |
//! | `math`      |   | the blocked passes of a layer in f32 and bfloat16, sums by grains, pairs of vectors, the logistic function |
//! | `collective` |  | schedules as values, their planners, price, bounds and executor; one-sided exchange, lists of any length; several tensors as one; carriers, that of shared memory; the bridge between machines (MPI) |
//! | `data`      |   | schema, minibatch, sources, formats, whose files appear together or not at all, rows that arrive, preprocessing, shuffle, loaders of whole minibatches and of slices, hot rows, columns that a model derives from those of the data (a wide part's, quotients and remainders), generated click logs and time series; what samples look like, to compare others with |
//! | `shard`     |   | who holds which part of which table; the cost of a division, and what copies of hot rows save; the planner; plans as files |
//! | `optim`     |   | optimizers (SGD to LAMB and FTRL), on whole weights and on halves (Split-SGD-BF16); parameter groups; the learning rate's schedule |
//! | `embedding` |   | tables, whole or in halves, look-up, update, copies of rows |
//! | `layer`     |   | linear, MLP, vectors made of pooled rows, dot and cat interaction, cross network, sums, functions and copies of vectors, wide part, steps of a time series and attention over them, loss: forward beside backward |
//! | `exchange`  |   | what ranks send each other of tables: ids, pooled rows, their gradients, hot rows, rows that are summed in a fixed order; how many bytes |
//! | `model`     |   | the network, of which every rank has a copy: a model's layers by their names (DLRM, DCNv2, Wide & Deep, TBSM, or one's own), planned as blocks (`graph`); a rank's tables; the stages of a step and their work |
//! | `train`     |   | step, ranks and their threads, reduction of dense gradients, by grains too, and the exchange of layers, clock, run, evaluation, checkpoint, export (ONNX, PyTorch), report |
//! | `simulate`  |   | what a step takes on a machine that is described or measured: stages and messages that share cores, memories and links |
//! | `cli`       |   | one file a command |
//!
//! # Walls that matter
//! * `math`, `optim`, `layer` and `embedding` are local mathematics: none of them knows a rank but by its share of a
//!   minibatch's grains ([`math::Share`]), and of the data only `embedding` knows the bags that it looks up.
//!   `collective` moves memory and knows no arithmetic but sums; `exchange` knows routes and shards, and no layer.
//!   `tests/machine/house.rs` has the list.
//! * The scalar function is the definition: vectors of any width give the same bits, and so does any number of threads.
//!   Tiles of AMX have definitions of their own, scalar too, for bfloat16 and for 32-bit floats in three parts.
//! * Randomness is a pure function of (seed, stream, index): see [`base::rng`].
//! * Errors are facts that a person can act on: see [`base::Error`].
//! * A new preset, be it of another network, is one new file and one line in a list; a data format, whose files must
//!   also be told from others and be written, and an optimizer, which has configuration, are one new file and a line in
//!   each `match` that the compiler then names. A layer is one new file and a [`base::config::LayerKind`], whose widths
//!   and rules stand beside it, which [`model::graph`] plans and runs, and `train/export/onnx` writes.
#![deny(unsafe_code)]
#![warn(missing_docs)]
// Models of `make loom` are of threads, up to `collective`: what stands on that would only have to be compiled.
#![cfg_attr(loom, allow(unused_imports, dead_code))]

pub mod base;
#[cfg(not(loom))]
pub mod cli;
pub mod collective;
#[cfg(not(loom))]
pub mod data;
#[cfg(not(loom))]
pub mod embedding;
#[cfg(not(loom))]
pub mod exchange;
#[allow(unsafe_code)]
pub mod ffi;
#[cfg(not(loom))]
pub mod layer;
pub mod machine;
#[cfg(not(loom))]
pub mod math;
pub mod memory;
#[cfg(not(loom))]
pub mod model;
#[cfg(not(loom))]
pub mod optim;
#[cfg(not(loom))]
pub mod shard;
pub mod simd;
#[cfg(not(loom))]
pub mod simulate;
pub mod sync;
#[cfg(not(loom))]
pub mod train;
