//! Communication threads reduce while the compute threads go on.
//!
//! A layer is given away by value when its gradient is complete, and comes back updated: nobody can touch a layer that
//! is under way. In its place stands a hollow one until [`DenseReduction::complete`] has put it back, which the
//! corridor calls before the forward pass and a rank before anything else that it is asked to do.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, TryRecvError, bounded};

use super::sliced::{LayerBlock, Spans};
use super::{DenseReduction, Sent, Sliced, UpdateContext};
use crate::base::{Error, Place, PuId, RankId, Result, Unpoisoned};
use crate::collective::Links;
use crate::data::Batch;
use crate::exchange::Replicas;
use crate::layer::Linear;
use crate::machine::team::Team;
use crate::model::{Network, Stage, Tables};
use crate::optim::StepSizes;
use crate::simd::Isa;
use crate::sync::{Job, Waiting};
use crate::train::Clock;
use crate::train::clock::Span;

/// What is reduced at a time. Layers travel by value: a box would be an allocation a layer and step.
#[allow(clippy::large_enum_variant)]
enum Block {
    /// A layer.
    Layer(LayerBlock),
    /// What this rank has for all replicated tables.
    Replicas(Replicas),
}

/// What they have done.
struct Completion {
    block: Block,
    busy: Duration,
}

/// Where a rank's communication threads run.
#[derive(Debug, Clone)]
pub(in crate::train) struct CommPlace {
    pub rank: RankId,
    pub pus: Vec<PuId>,
    pub spin: bool,
    pub isa: Isa,
}

/// A reduction by communication threads.
pub(in crate::train) struct Overlapped {
    rank: RankId,
    job: Job,
    /// Whether layers leave as soon as their gradients are complete; else after the backward pass.
    overlap: bool,
    /// `None` when the threads are asked to end.
    requests: Option<Sender<Block>>,
    completions: Receiver<Completion>,
    thread: Option<JoinHandle<()>>,
    /// Layers and replicas that are under way.
    under_way: usize,
    /// `None` while they are under way.
    replicas: Option<Replicas>,
    /// Layers whose gradients are complete and that have not left, in order.
    ready: Vec<usize>,
    /// Layers whose gradients are complete in this step.
    announced: usize,
    /// As many must be, where gradients are clipped: else none comes back.
    all: Option<usize>,
    busy: Duration,
    planned: Links,
    /// Bytes that the communication threads have sent to each rank so far.
    sent: Arc<Mutex<Vec<usize>>>,
    spans: Vec<Spans>,
}

/// The life of the thread that leads the communication threads: reduces what comes in, in that order, until the rank
/// asks it to end.
fn serve(
    place: &CommPlace,
    sliced: &mut Sliced,
    inbox: &Receiver<Block>,
    outbox: &Sender<Completion>,
    sent: &Mutex<Vec<usize>>,
) -> Result<()> {
    let team = Team::pinned(&place.pus, place.spin, place.isa)?;
    let complete = |sliced: &Sliced, block, busy| {
        sliced.sent_so_far(&mut sent.lock().unpoisoned());
        // The rank has ended if it does not take it.
        let _ = outbox.send(Completion { block, busy });
    };
    for block in inbox {
        match block {
            Block::Layer(layer) => sliced.reduce(&team, layer, |sliced, layer| {
                let busy = layer.busy;
                complete(sliced, Block::Layer(layer), busy);
            })?,
            Block::Replicas(mut replicas) => {
                let began = Instant::now();
                sliced.replicas(&mut replicas)?;
                complete(sliced, Block::Replicas(replicas), began.elapsed());
            }
        }
    }
    Ok(())
}

impl Overlapped {
    /// Starts the communication threads.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(in crate::train) fn start(
        place: CommPlace,
        job: &Job,
        mut sliced: Sliced,
        replicas: Replicas,
        overlap: bool,
    ) -> Result<Self> {
        let (blocks, all) = (sliced.layers() + 1, sliced.clips().then_some(sliced.layers()));
        let (requests, inbox) = bounded::<Block>(blocks);
        let (outbox, completions) = bounded(blocks);
        let (rank, planned) = (place.rank, sliced.sent().planned);
        let (sent, spans) = (Arc::new(Mutex::new(vec![0; planned.ranks()])), sliced.spans());
        let (own_job, own_sent) = (job.clone(), sent.clone());
        let serve = move || {
            // Its error is the job's, which all others meet.
            let _ = own_job.guard(rank, || serve(&place, &mut sliced, &inbox, &outbox, &own_sent));
        };
        let thread = std::thread::Builder::new().name(format!("octorec-comm-{}", rank.0)).spawn(serve);
        let thread = Some(thread.map_err(Error::threads(1))?);
        Ok(Self {
            rank,
            job: job.clone(),
            overlap,
            requests: Some(requests),
            completions,
            thread,
            under_way: 0,
            replicas: Some(replicas),
            ready: Vec::with_capacity(blocks),
            announced: 0,
            all,
            busy: Duration::ZERO,
            planned,
            sent,
            spans,
        })
    }

    fn request(&mut self, block: Block) {
        self.under_way += 1;
        // If the threads have ended, the job is in trouble, and this rank learns of it when it waits for the block.
        let _ = self.requests.as_ref().expect("not asked to end yet").send(block);
    }

    fn request_replicas(&mut self) {
        if let Some(replicas) = self.replicas.take() {
            self.request(Block::Replicas(replicas));
        }
    }

    /// Waits for the block that was requested first of all that are under way, and puts it in its place.
    fn take(&mut self, network: &mut dyn Network) -> Result<()> {
        // The threads tell who keeps them waiting; whatever ends them is the job's trouble, and ends this wait. Its own
        // deadline would accuse this rank, and pass while they move on.
        let mut waiting = Waiting::endless();
        loop {
            match self.completions.try_recv() {
                Ok(Completion { block, busy }) => {
                    self.under_way -= 1;
                    self.busy += busy;
                    match block {
                        Block::Layer(layer) => layer.put_back(network),
                        Block::Replicas(replicas) => self.replicas = Some(replicas),
                    }
                    return Ok(());
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {
                    let place = Place { stage: "wait for communication threads", ..self.job.place(self.rank) };
                    waiting.turn(&self.job, place, self.rank).map_err(Error::Rank)?;
                }
            }
        }
    }
}

impl DenseReduction for Overlapped {
    fn begin(&mut self, index: usize, layer: &mut Linear, step_sizes: StepSizes) {
        self.announced += 1;
        if self.overlap {
            self.request(Block::Layer(LayerBlock::take(index, layer, step_sizes)));
        } else {
            self.ready.push(index);
        }
    }

    fn begin_replicas(&mut self, team: &Team, tables: &mut Tables, batch: &Batch, gradient: &[f32]) {
        let Some(replicas) = self.replicas.as_mut().filter(|replicas| !replicas.is_empty()) else { return };
        tables.list_replicas(team, batch, gradient, replicas);
        if self.overlap {
            self.request_replicas();
        }
    }

    fn update(&mut self, context: UpdateContext<'_>) -> Result<()> {
        let UpdateContext { team, network, tables, clock, step_sizes } = context;
        let announced = std::mem::take(&mut self.announced);
        if let Some(all) = self.all {
            assert!(announced == all, "{announced} of {all} layers were announced");
        }
        clock.time(Stage::ReduceDense, || {
            for at in 0..self.ready.len() {
                let index = self.ready[at];
                self.request(Block::Layer(LayerBlock::take(index, network.layer_mut(index), step_sizes)));
            }
            self.ready.clear();
            if !self.overlap && self.replicas.as_ref().is_some_and(|replicas| !replicas.is_empty()) {
                self.request_replicas();
            }
            while self.under_way > 0 && (self.replicas.is_none() || !self.overlap) {
                self.take(network)?;
            }
            Ok(())
        })?;
        if let Some(replicas) = &self.replicas {
            clock.time(Stage::UpdateRows, || tables.update_replicas(team, replicas, step_sizes));
        }
        Ok(())
    }

    fn complete(&mut self, network: &mut dyn Network, clock: &mut Clock) -> Result<()> {
        if self.under_way == 0 {
            return Ok(());
        }
        clock.time(Stage::ReduceDense, || {
            while self.under_way > 0 {
                self.take(network)?;
            }
            Ok(())
        })
    }

    fn busy(&self) -> Duration {
        self.busy
    }

    fn is_sliced(&self) -> bool {
        true
    }

    fn sent(&self) -> Sent {
        let so_far = self.sent.lock().unpoisoned().clone();
        Sent { planned: self.planned.clone(), so_far }
    }

    fn spans(&self) -> Vec<Vec<Span>> {
        self.spans.iter().map(|spans| spans.lock().unpoisoned().clone()).collect()
    }
}

impl Drop for Overlapped {
    fn drop(&mut self) {
        self.requests = None;
        // Join only an idle thread: a busy one may wait for ranks that wait for us, and ends when the job is poisoned,
        // which happens after this drop.
        if let Some(thread) = self.thread.take().filter(|_| self.under_way == 0) {
            // It guards itself.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::base::config::ModelConfig;
    use crate::base::{Deadline, Error, RankId, Trouble};
    use crate::data::{Column, Schema};
    use crate::machine::placement::{CommCores, Wishes};
    use crate::machine::{Machine, place};
    use crate::model::TrainSpec;
    use crate::optim::StepSizes;
    use crate::shard::scheme::{Scheme, Sharding};
    use crate::train::{Ranks, Setup};

    /// Two ranks with a communication thread each.
    fn setup() -> Setup {
        let config = ModelConfig {
            bottom: vec![3, 64, 4],
            top: vec![64, 1],
            dim: 4,
            rows: vec![10, 20],
            ..ModelConfig::default()
        };
        let tables = [10, 20].map(|rows| Column::new(format!("of {rows}"), rows)).to_vec();
        let schema = Schema { dense: 3, weighted: false, tables };
        let wishes = Wishes { ranks: Some(2), threads: Some(1), comm_cores: CommCores::Count(0), ..Wishes::default() };
        let placement = place(&Machine::load("host").unwrap(), &wishes).unwrap();
        let schemes = vec![Scheme::Table(RankId(0)), Scheme::Table(RankId(1))];
        let sharding = Sharding::new(&[10, 20], vec![4; 2], 2, schemes).unwrap();
        let mut setup = Setup::new(&config, &schema, sharding, TrainSpec::sgd(8), &placement);
        setup.spin = false;
        setup.places.iter_mut().for_each(|place| place.comm = place.compute.clone());
        setup
    }

    #[test]
    fn a_rank_that_fails_while_a_layer_is_under_way_is_told_at_once_and_by_its_own_message() {
        let setup = setup();
        for culprit in [0, 1] {
            let ranks = Ranks::start(setup.clone()).unwrap();
            let began = Instant::now();
            let error = ranks
                .all(move |rank| {
                    if rank.context.rank == RankId(culprit) {
                        // The other rank never gives its own, so this one stays under way.
                        rank.reduction.begin(0, rank.network.layer_mut(0), StepSizes::default());
                        panic!("row 7 is bad");
                    }
                    Ok(())
                })
                .unwrap_err();
            assert!(error.to_string().contains("row 7 is bad"), "{error}");
            // No bound on speed: without care the message would be another, after this.
            assert!(began.elapsed() < setup.deadline.time);
        }
    }

    #[test]
    fn a_rank_whose_communication_threads_wait_tells_for_whom_they_do() {
        let ranks = Ranks::start(Setup { deadline: Deadline::fixed(Duration::from_millis(300)), ..setup() }).unwrap();
        // The second rank never gives its own.
        let error = ranks.all(|rank| {
            if rank.context.rank == RankId(0) {
                rank.reduction.begin(0, rank.network.layer_mut(0), StepSizes::default());
            }
            rank.complete()
        });
        let stalled = error.unwrap_err();
        assert!(matches!(stalled, Error::Rank(Trouble::Stalled { peer: RankId(1), .. })), "{stalled}");
    }
}
