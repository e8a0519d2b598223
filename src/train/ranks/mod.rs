//! Training on several ranks of one process: each a team of threads with a copy of the dense layers and its shards of
//! the tables, on its own node.
//!
//! [`Ranks`] is what the caller holds. Ranks live on threads of their own, wait for work and do it together; between
//! steps nothing of theirs is shared. One that fails ends all, with its message ([`crate::collective::launch`]).

mod account;
mod hands;
mod rank;
mod step;
mod times;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, bounded, unbounded};

pub use account::{Region, Verified};
pub use rank::Rank;
pub use times::{Breakdown, Stage};

use crate::base::config::ModelConfig;
use crate::base::{Error, NodeId, Place, RankId, Result, TableId, Trouble};
use crate::collective::plan::Reduction;
use crate::collective::{Lobby, Member, launch};
use crate::data::{Batch, LoaderMode, Plan, Position, RankLoader, Schema, Source, Waited};
use crate::exchange::{Layout, lanes};
use crate::machine::placement::{Placement, RankPlace};
use crate::math::Grains;
use crate::model::{Parameter, Room};
use crate::shard::scheme::{Shard, Sharding};
use crate::simd::Isa;
use crate::sync::{Job, Patience};

/// What ranks are built from.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The model.
    pub config: ModelConfig,
    /// Its data.
    pub schema: Schema,
    /// Who holds what.
    pub sharding: Sharding,
    /// For whole minibatches.
    pub room: Room,
    /// Where each rank stands.
    pub places: Vec<RankPlace>,
    /// Whether waiting threads have cores of their own.
    pub spin: bool,
    /// The instruction set of all ranks.
    pub isa: Isa,
    /// How dense gradients are summed.
    pub reduction: Reduction,
    /// Whether communication threads, where ranks have them, exchange gradients of layers behind the backward pass;
    /// else they do it after it.
    pub overlap: bool,
    /// What minibatches are cut into, if the number of ranks and the division of tables shall change no bit; then dense
    /// gradients are summed by grains instead.
    pub grains: Option<Grains>,
    /// The longest that a rank waits for another.
    pub deadline: Duration,
}

impl Setup {
    /// On these places, with what suits most: dense gradients around a ring in both directions, a minute's patience.
    #[must_use]
    pub fn new(config: &ModelConfig, schema: &Schema, sharding: Sharding, room: Room, placement: &Placement) -> Self {
        Self {
            config: config.clone(),
            schema: schema.clone(),
            sharding,
            room,
            places: placement.ranks.clone(),
            spin: placement.spin,
            isa: Isa::best(),
            reduction: Reduction::TwoRing,
            overlap: true,
            grains: None,
            deadline: Duration::from_secs(60),
        }
    }
}

/// A step that was made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step<Loss = f64> {
    /// The mean loss, from before the update.
    pub loss: Loss,
    /// Samples of the minibatch.
    pub samples: usize,
    /// The place after it.
    pub position: Position,
}

/// What a rank is told to do.
type Command = Box<dyn FnOnce(&mut Rank) -> Result<()> + Send>;

/// Ranks that wait for work. Dropping them ends them.
pub struct Ranks {
    /// Locked while the ranks are at work: they do one thing at a time.
    reins: Mutex<Reins>,
    layout: Arc<Layout>,
    /// The nodes of each rank's memory.
    homes: Arc<[Vec<NodeId>]>,
    /// What the user should know.
    warnings: Vec<String>,
}

/// What the ranks are led by.
struct Reins {
    commands: Vec<Sender<Command>>,
    /// The thread that started them, until it was asked how they ended.
    life: Option<JoinHandle<Result<()>>>,
}

impl Ranks {
    /// Starts the ranks of a setup, all weights 0.
    ///
    /// # Errors
    /// When threads or memory are refused, or a rank's node cannot hold its part.
    ///
    /// # Panics
    /// When places and sharding have different numbers of ranks.
    pub fn start(mut setup: Setup) -> Result<Self> {
        assert_eq!(setup.places.len(), setup.sharding.ranks(), "a place for each rank of the sharding");
        let layout = Layout::new(setup.sharding.clone()).with_grains(setup.grains).with_weights(&setup.schema);
        let layout = Arc::new(layout);
        if setup.grains.is_some() {
            // Grains part no pair of samples: a minibatch of an odd number may take the place of one more.
            setup.room.samples = setup.room.samples.next_multiple_of(2);
        }
        let patience = if setup.spin { Patience::OWN_CORE } else { Patience::SHARED_CORE };
        let job = Job::new(layout.ranks(), patience, setup.deadline);
        let lobby = Lobby::new(&job, lanes(&layout, setup.room.samples, hands(&setup.places)));
        let (commands, orders): (Vec<_>, Vec<Receiver<Command>>) = setup.places.iter().map(|_| unbounded()).unzip();
        let (parts, homes) = (layout.clone(), Self::homes(&setup));
        let life = move || {
            launch(&job, move |member: Member| {
                let orders = orders[member.rank.index()].clone();
                let mut rank = Rank::build(&setup, parts.clone(), &lobby, member)?;
                // The other end is dropped when the ranks are.
                orders.iter().try_for_each(|order| order(&mut rank))
            })
            .map(|_| ())
        };
        let life = std::thread::Builder::new().name("octorec-ranks".to_owned()).spawn(life);
        let life = life.map_err(|source| Error::Threads { wanted: commands.len(), source })?;
        let reins = Mutex::new(Reins { commands, life: Some(life) });
        let mut ranks = Self { reins, layout, homes, warnings: Vec::new() };
        ranks.warnings = ranks.all(|rank| Ok(rank.warnings().to_vec()))?.concat();
        Ok(ranks)
    }

    /// Who holds what.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What the user should know about the ranks' memory.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What it costs that the number of ranks changes no bit, for people; `None` where it may.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn ordered_cost(&self) -> Result<Option<String>> {
        let costs = self.all(|rank| Ok(rank.ordered.as_ref().map(|(ordered, _)| ordered.cost())))?;
        Ok(costs.into_iter().next().flatten())
    }

    /// Lets every rank do this at the same time, and returns what they return, by rank.
    ///
    /// # Errors
    /// The error of the rank that failed first. After an error the ranks have ended.
    pub fn all<T: Send + 'static>(
        &self,
        work: impl Fn(&mut Rank) -> Result<T> + Send + Sync + 'static,
    ) -> Result<Vec<T>> {
        let (work, ranks) = (Arc::new(work), self.layout.ranks());
        let (reply, replies) = bounded(ranks);
        let mut reins = self.reins.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, command) in reins.commands.iter().enumerate() {
            let (work, reply) = (work.clone(), reply.clone());
            // A rank that has ended does not take orders; its error is asked for below.
            let _ = command.send(Box::new(move |rank| {
                let value = work(rank)?;
                // Somebody waits for it, unless another rank has failed.
                let _ = reply.send((number, value));
                Ok(())
            }));
        }
        drop(reply);
        let mut values: Vec<Option<T>> = (0..ranks).map(|_| None).collect();
        replies.iter().for_each(|(number, value)| values[number] = Some(value));
        values.into_iter().collect::<Option<Vec<T>>>().map_or_else(|| Err(reins.end()), Ok)
    }

    /// Draws initial weights: those that one rank would draw.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn initialise(&self, seed: u64) -> Result<()> {
        self.all(move |rank| rank.initialise(seed)).map(|_| ())
    }

    /// Trains on one minibatch at learning rate `rate` and returns its mean loss (from before the update): the sum of
    /// the samples' losses in their order, whatever the number of ranks.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn step(&self, batch: &Arc<Batch>, rate: f32) -> Result<f64> {
        let whole = batch.clone();
        let losses = self.all(move |rank| rank.step(&whole, rate))?;
        Ok(losses.iter().flatten().sum::<f64>() / batch.samples() as f64)
    }

    /// Lets every rank load its own slices of minibatches from now on; whether there is a first one.
    ///
    /// # Errors
    /// As [`Ranks::all`]; inside, what is wrong with the data, which leaves the ranks as they are.
    ///
    /// # Panics
    /// As [`RankLoader::start`].
    pub fn feed(&self, source: &Arc<dyn Source>, plan: Plan, mode: LoaderMode) -> Result<Result<bool>> {
        let loaders = RankLoader::start(source, plan, mode, self.layout.ranks(), self.layout.grains())?;
        let loaders: Vec<_> = loaders.into_iter().map(|loader| Mutex::new(Some(loader))).collect();
        self.all(move |rank| {
            let loader = loaders[rank.number.index()].lock().unwrap_or_else(PoisonError::into_inner).take();
            Ok(rank.feed(loader))
        })
        .map(together)
    }

    /// Ends the loading.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn unfeed(&self) -> Result<()> {
        self.all(|rank| Ok(rank.feed(None))).map(|_| ())
    }

    /// Trains on the minibatch that the ranks have loaded, at learning rate `rate`; the loss is that of [`Ranks::step`].
    /// Beside it, whether there is a next minibatch.
    ///
    /// # Errors
    /// As [`Ranks::all`]; inside, what is wrong with the data of the next minibatch, which leaves the ranks as they are.
    ///
    /// # Panics
    /// When there is no minibatch.
    pub fn advance(&self, rate: f32) -> Result<(Step, Result<bool>)> {
        let (steps, more): (Vec<_>, Vec<_>) = self.all(move |rank| rank.advance(rate))?.into_iter().unzip();
        let Step { samples, position, .. } = steps[0];
        let sum: f64 = steps.iter().flat_map(|step| &step.loss).sum();
        Ok((Step { loss: sum / samples as f64, samples, position }, together(more)))
    }

    /// How long the ranks have waited for their slices, the longest of them, and bytes that were read for each.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn data_use(&self) -> Result<(Waited, Vec<u64>)> {
        let (waited, bytes): (Vec<Waited>, _) = self.all(|rank| Ok(rank.data_use()))?.into_iter().unzip();
        Ok((waited.into_iter().max_by_key(|waited| waited.all).unwrap_or_default(), bytes))
    }

    /// The click probabilities of a minibatch's samples.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn predict(&self, batch: &Arc<Batch>) -> Result<Vec<f32>> {
        let whole = batch.clone();
        Ok(self.all(move |rank| rank.predict(&whole))?.concat())
    }

    /// Where each rank's steps have gone so far.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn breakdowns(&self) -> Result<Vec<Breakdown>> {
        self.all(Rank::breakdown)
    }

    /// Every tensor, in the order of the reference's state dict.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn parameters(&self) -> Result<Vec<Parameter>> {
        let sharding = self.layout.sharding();
        let tables =
            (0..sharding.tables()).map(|table| (sharding.rows(TableId(table as u32)) as usize, sharding.dim()));
        let tables = tables.enumerate().map(|(table, (rows, dim))| Parameter::of_table(table, rows, dim));
        let dense = self.all(Rank::dense_parameters)?.swap_remove(0);
        Ok(tables.chain(dense).collect())
    }

    /// The numbers of one tensor, row-major; of what all ranks have, the first rank's.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn export(&self, parameter: &Parameter) -> Result<Vec<f32>> {
        if let Some(table) = parameter.table() {
            return self.export_table(TableId(table as u32));
        }
        let parameter = parameter.clone();
        Ok(self.all(move |rank| rank.export_dense(&parameter))?.swap_remove(0))
    }

    /// Overwrites one tensor on every rank that has a part of it.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn import(&self, parameter: &Parameter, values: &[f32]) -> Result<()> {
        let (parameter, values) = (parameter.clone(), values.to_vec());
        self.all(move |rank| rank.import(&parameter, &values)).map(|_| ())
    }

    /// A whole table, row-major, stitched from its shards.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn export_table(&self, table: TableId) -> Result<Vec<f32>> {
        let (dim, rows) = (self.layout.sharding().dim(), self.layout.sharding().rows(table));
        let parts: Vec<Vec<(Shard, Vec<f32>)>> = self.all(move |rank| Ok(rank.export_table(table)))?;
        let mut whole = vec![0.0; rows as usize * dim];
        for (shard, values) in parts.into_iter().flatten() {
            for (local, row) in values.chunks_exact(shard.columns.len()).enumerate() {
                let start = shard.rows.global(local as u64) as usize * dim + shard.columns.start;
                whole[start..start + row.len()].copy_from_slice(row);
            }
        }
        Ok(whole)
    }
}

/// Whether all ranks have a slice, or the first error.
///
/// # Panics
/// When some have and some have not.
fn together(more: Vec<Result<bool>>) -> Result<bool> {
    let more = more.into_iter().collect::<Result<Vec<_>>>()?;
    assert!(more.windows(2).all(|pair| pair[0] == pair[1]), "minibatches end for all ranks at once");
    Ok(more[0])
}

/// How many threads of each rank exchange dense gradients: its communication threads if all ranks have some, else its
/// compute threads; the least of any rank.
fn hands(places: &[RankPlace]) -> usize {
    let least = |threads: fn(&RankPlace) -> usize| places.iter().map(threads).min().unwrap_or(1);
    let comm = least(|place| place.comm.len());
    if comm > 0 { comm } else { least(|place| place.compute.len()) }
}

impl Reins {
    /// Ends the ranks and returns why they did not answer.
    fn end(&mut self) -> Error {
        self.commands.clear();
        match self.life.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => error,
            Some(Err(payload)) => std::panic::resume_unwind(payload),
            Some(Ok(Ok(()))) | None => {
                let message = "the ranks have ended before".to_owned();
                Error::Rank(Trouble::Failed { place: Place::start(RankId(0)), message })
            }
        }
    }
}

impl Drop for Reins {
    fn drop(&mut self) {
        self.commands.clear();
        if let Some(life) = self.life.take() {
            // Nobody is there to act on an error.
            let _ = life.join();
        }
    }
}
