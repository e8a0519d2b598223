//! Training on 1 to n ranks of one process: each a team of threads with a copy of the network and its part of the
//! tables, on its own node.
//!
//! [`Ranks`] is what the caller holds. The caller's own thread is rank 0: alone it needs nobody to be woken. The other
//! ranks have threads of their own, which wait for tasks; between steps nothing of theirs is shared. One that fails
//! ends all, with its message.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::Setup;
use super::metrics::LossSum;
use super::rank::{Common, Rank};
use super::rates::Rates;
use crate::base::{Error, Place, PuId, RankId, Result, Trouble, Unpoisoned};
use crate::collective::{Member, spawn_rank};
use crate::data::hot::Inputs;
use crate::data::{Batch, Position};
use crate::exchange::{LanePlan, Layout};
use crate::sync::{Barrier, Job, Patience, barriers};

/// How often it is looked whether the job is in trouble.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long machines wait for each other to touch their memory, at least.
const TOUCHING: Duration = Duration::from_secs(3600);

/// A step that was made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step<Loss = f64> {
    /// The mean loss, from before the update.
    pub loss: Loss,
    /// The same by weight, as that of samples of weight 1; 0 where they have none.
    pub weighted_mean: Loss,
    /// Samples of the minibatch.
    pub samples: usize,
    /// The place after it.
    pub position: Position,
}

impl Step {
    /// The loss that is told of a step which is judged by it, and whether that is the one by weight: where both are
    /// numbers and differ.
    pub fn told_loss(&self) -> (f64, bool) {
        let by_weight = self.loss.is_finite() && self.weighted_mean.is_finite() && self.weighted_mean != self.loss;
        (if by_weight { self.weighted_mean } else { self.loss }, by_weight)
    }
}

/// Anything that a rank can do.
pub(super) type Call = Box<dyn FnOnce(&mut Rank) -> Result<()> + Send>;

/// What a rank is to do.
pub(super) enum Task {
    Call(Call),
    /// Train on its slice of this minibatch of such inputs.
    Train(Arc<Batch>, Inputs, Rates),
    /// Train on the slice of such inputs that it has loaded.
    Advance(Inputs, Rates),
}

/// What a rank tells of a step.
#[derive(Default)]
pub(super) struct StepOutcome {
    /// Of its own samples.
    losses: LossSum,
    pub(super) step: Option<Step<()>>,
    pub(super) more: Option<Result<bool>>,
}

/// Ranks that wait for work. Dropping them ends them.
pub struct Ranks {
    /// `None` after an error.
    first: RefCell<Option<Rank>>,
    others: RefCell<Others>,
    pub(super) outcomes: Arc<[Mutex<StepOutcome>]>,
    pub(super) job: Job,
    pub(super) layout: Arc<Layout>,
    pub(super) setup: Arc<Setup>,
    /// What any machine has asked of all, as of what they last gathered.
    pub(super) asked: Cell<u8>,
    /// From when on a checkpoint is due by time, on the first machine.
    pub(super) save_at: Cell<Option<Instant>>,
    /// What the user should know.
    warnings: Vec<String>,
    pub(super) began: Instant,
}

/// The ranks from 1 on.
struct Others {
    tasks: Vec<Sender<Task>>,
    /// One message a rank and task.
    done: Receiver<()>,
    threads: Vec<JoinHandle<()>>,
    /// The first error of any of them that was not the job's.
    error: Arc<Mutex<Option<Error>>>,
}

impl Task {
    fn run(self, rank: &mut Rank, outcome: &Mutex<StepOutcome>) -> Result<()> {
        let outcome = || outcome.lock().unpoisoned();
        match self {
            Self::Call(work) => {
                rank.complete()?;
                rank.clock.enter("work between steps");
                work(rank)
            }
            Self::Train(batch, inputs, rates) => {
                rank.train((&batch, inputs), rates)?;
                outcome().losses = rank.losses();
                Ok(())
            }
            Self::Advance(inputs, rates) => {
                let (step, more) = rank.advance(inputs, rates)?;
                *outcome() = StepOutcome { losses: rank.losses(), step: Some(step), more: Some(more) };
                Ok(())
            }
        }
    }
}

/// The life of a rank's thread: builds the rank, and does the tasks that come until there are no more senders or one
/// fails. The first error that is not another rank's goes to `error`.
fn serve(
    setup: &Setup,
    common: &Common,
    member: Member,
    tasks: &Receiver<Task>,
    done: &Sender<()>,
    outcome: &Mutex<StepOutcome>,
    error: &Mutex<Option<Error>>,
) {
    let (job, number) = (member.job.clone(), member.rank);
    let fail = |failure: Error| {
        if !matches!(failure, Error::Rank(_)) {
            error.lock().unpoisoned().get_or_insert(failure);
        }
    };
    let mut rank = match job.guard(number, || Rank::build(setup, common, member)) {
        Ok(rank) => rank,
        Err(failure) => return fail(failure),
    };
    // Until the other end is dropped, when the ranks are.
    while let Some(task) = job.look(|| tasks.try_recv().ok()).or_else(|| tasks.recv().ok()) {
        let result = job.guard(number, || task.run(&mut rank, outcome));
        let failed = result.map_err(fail).is_err();
        let _ = done.send(());
        if failed {
            return;
        }
    }
}

impl Others {
    /// Starts a thread for each of this machine's ranks but the first one, whose barriers these are.
    ///
    /// # Errors
    /// When the system refuses a thread, which ends the job.
    fn start(
        setup: &Arc<Setup>,
        common: &Arc<Common>,
        job: &Job,
        outcomes: &Arc<[Mutex<StepOutcome>]>,
        barriers: impl Iterator<Item = Barrier>,
    ) -> Result<Self> {
        let (sender, done) = bounded(outcomes.len());
        let mut others = Self { tasks: Vec::new(), done, threads: Vec::new(), error: Arc::new(Mutex::new(None)) };
        for (index, barrier) in (1..).zip(barriers) {
            let (task_sender, tasks) = bounded::<Task>(1);
            let (setup, common, own) = (setup.clone(), common.clone(), outcomes.clone());
            let (done, error) = (sender.clone(), others.error.clone());
            let rank = barrier.rank();
            let member = Member { rank, job: job.clone(), barrier };
            let serve = move || serve(&setup, &common, member, &tasks, &done, &own[index], &error);
            others.threads.push(spawn_rank(job, rank, outcomes.len(), serve)?);
            others.tasks.push(task_sender);
        }
        Ok(others)
    }
}

impl Ranks {
    /// Starts the ranks of a setup, all weights 0. The current thread becomes rank 0 until they are dropped.
    ///
    /// # Errors
    /// When threads or memory are refused, a rank's node cannot hold its part, or the schema's dense features do not
    /// match.
    ///
    /// # Panics
    /// When places and sharding have different numbers of ranks.
    pub fn start(setup: Setup) -> Result<Self> {
        let setup = setup.checked()?;
        let layout = Arc::new(setup.layout());
        let patience = if setup.spin { Patience::OWN_CORE } else { Patience::SHARED_CORE };
        let job = Job::on_machines(setup.world.elsewhere(&setup.machines), patience, setup.deadline);
        let mut specs = Vec::new();
        let sizes = (setup.spec.samples, setup.pairs());
        let lanes = LanePlan::new(&layout, sizes, setup.dense_lanes()).map(|spec| specs.push(spec));
        let local = setup.local();
        let fabric = (setup.fabric)(&setup.world, &job, &setup.machines, specs)?;
        let common = Arc::new(Common { layout: layout.clone(), fabric, lanes, demands: Mutex::default() });
        let outcomes: Arc<[Mutex<StepOutcome>]> = local.clone().map(|_| Mutex::default()).collect();
        let mut barriers = barriers(&job, local).into_iter();
        let barrier = barriers.next().expect("a job has ranks");
        let setup = Arc::new(setup);
        let others = Others::start(&setup, &common, &job, &outcomes, barriers)?;
        let rank = barrier.rank();
        let member = Member { rank, job: job.clone(), barrier };
        let first = job.guard(rank, || Rank::build(&setup, &common, member));
        let mut ranks = Self {
            first: RefCell::new(None),
            others: RefCell::new(others),
            outcomes,
            job,
            layout,
            setup,
            asked: Cell::new(0),
            save_at: Cell::new(None),
            warnings: Vec::new(),
            began: Instant::now(),
        };
        match first {
            Ok(first) => ranks.first = RefCell::new(Some(first)),
            Err(error) => return Err(ranks.end(error)),
        }
        for warning in ranks.all(|rank| Ok(rank.warnings().to_vec()))?.concat() {
            // What holds of the machine all ranks find.
            if !ranks.warnings.contains(&warning) {
                ranks.warnings.push(warning);
            }
        }
        // Machines touch their memory at their own pace, which is no step's.
        ranks.world().all_gather("start ranks", Vec::new(), ranks.job.deadline().at_least(TOUCHING))?;
        Ok(ranks)
    }

    /// Who holds what.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where threads run that work for each rank beside its own.
    pub(super) fn asides(&self) -> Vec<Vec<PuId>> {
        self.setup.places[self.local()].iter().map(|place| place.aside.clone()).collect()
    }

    /// What the user should know about the ranks' memory and updates.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Gives every rank its task and waits until all are done.
    pub(super) fn run(&self, task: &mut dyn FnMut(usize) -> Task) -> Result<()> {
        let mut first = self.first.borrow_mut();
        let Some(rank) = &mut *first else {
            let (message, rank) = ("the ranks have ended before".to_owned(), RankId(self.local().start as u32));
            return Err(Error::Rank(Trouble::Failed { place: Place::start(rank), message }));
        };
        let others = self.others.borrow();
        for (number, tasks) in (1..).zip(&others.tasks) {
            // A rank that has ended takes no task; its error is asked for below.
            let _ = tasks.send(task(number));
        }
        let mut result = self.job.guard(rank.context.rank, || task(0).run(rank, &self.outcomes[0]));
        let mut due = others.tasks.len();
        while result.is_ok() && due > 0 {
            let soon = self.job.look(|| others.done.try_recv().ok());
            match soon.map_or_else(|| others.done.recv_timeout(LOOK_EVERY), Ok) {
                Ok(()) => due -= 1,
                Err(RecvTimeoutError::Disconnected) => due = 0,
                Err(RecvTimeoutError::Timeout) => {}
            }
            // Once it is in trouble, ranks that still work are waited for where they are ended.
            result = self.job.check().map_err(Error::Rank);
        }
        drop(others);
        result.map_err(|error| {
            *first = None;
            drop(first);
            self.end(error)
        })
    }

    /// Ends the ranks after an error; returns the one to tell.
    fn end(&self, error: Error) -> Error {
        let mut others = self.others.borrow_mut();
        others.tasks.clear();
        let deadline = Instant::now() + self.job.deadline().time;
        for thread in others.threads.drain(..) {
            // A rank stuck in code that never waits cannot be stopped; abandon its thread.
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                // It guards itself.
                let _ = thread.join();
            }
        }
        let own = others.error.lock().unpoisoned().take();
        if matches!(error, Error::Rank(_)) { own.unwrap_or(error) } else { error }
    }

    /// Lets every rank of this machine do this at the same time, and returns what they return, by rank. On several
    /// machines all do it at the same time, and each gets its own.
    ///
    /// # Errors
    /// The error of the rank that failed first. After an error the ranks have ended.
    pub fn all<T: Send + 'static>(
        &self,
        work: impl Fn(&mut Rank) -> Result<T> + Send + Sync + 'static,
    ) -> Result<Vec<T>> {
        self.all_with(vec![(); self.local().len()], move |(), rank| work(rank))
    }

    /// As [`Ranks::all`]; each rank of this machine is given one of these.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub(super) fn all_with<G: Send + 'static, T: Send + 'static>(
        &self,
        given: Vec<G>,
        work: impl Fn(G, &mut Rank) -> Result<T> + Send + Sync + 'static,
    ) -> Result<Vec<T>> {
        let work = Arc::new(work);
        let values: Arc<[Mutex<Option<T>>]> = given.iter().map(|_| Mutex::new(None)).collect();
        let mut given: Vec<Option<G>> = given.into_iter().map(Some).collect();
        self.run(&mut |number| {
            let (work, values) = (work.clone(), values.clone());
            let given = given[number].take().expect("a rank has one task at a time");
            Task::Call(Box::new(move |rank| {
                let value = work(given, rank)?;
                *values[number].lock().unpoisoned() = Some(value);
                Ok(())
            }))
        })?;
        let take = |value: &Mutex<Option<T>>| value.lock().unpoisoned().take();
        Ok(values.iter().filter_map(take).collect())
    }

    /// As [`Ranks::all`], of what returns nothing and has no errors of its own.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub(super) fn each(&self, work: impl Fn(&mut Rank) + Send + Sync + 'static) -> Result<()> {
        self.all(move |rank| {
            work(rank);
            Ok(())
        })
        .map(drop)
    }

    /// Tells the ranks how many steps of the run another process has made: messages about them count on from there.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn continue_after(&self, steps: u64) -> Result<()> {
        self.each(move |rank| rank.clock.continue_after(steps))
    }

    /// Draws initial weights: those that one rank would draw.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn initialise(&self, seed: u64) -> Result<()> {
        self.each(move |rank| rank.initialise(seed))
    }

    /// Trains on one minibatch at learning rates `rates`, or one for all weights, and returns its mean loss (from
    /// before the update), which is added up with the same bits by any number of ranks.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn step(&self, batch: &Arc<Batch>, rates: impl Into<Rates>) -> Result<f64> {
        self.step_on(batch, Inputs::Mixed, rates)
    }

    /// The same on a minibatch of such inputs: of cold ones no look-up reads a copy of a hot row, and copies are behind
    /// until other inputs come; of hot ones all look-ups read copies, where ranks have some.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    ///
    /// # Panics
    /// When hot inputs look up rows of which there is no copy.
    pub fn step_on(&self, batch: &Arc<Batch>, inputs: Inputs, rates: impl Into<Rates>) -> Result<f64> {
        let rates = rates.into();
        self.run(&mut |_| Task::Train(batch.clone(), inputs, rates))?;
        Ok(self.losses()?.mean())
    }

    /// The losses of the last step's samples, on all machines.
    pub(super) fn losses(&self) -> Result<LossSum> {
        let mut own = LossSum::default();
        for outcome in &*self.outcomes {
            own.plus(&outcome.lock().unpoisoned().losses);
        }
        if self.world().machines() == 1 {
            return Ok(own);
        }
        let mut sum = LossSum::default();
        self.everywhere("gather losses", vec![own])?.iter().flatten().for_each(|own| sum.plus(own));
        Ok(sum)
    }

    /// The click probabilities of a minibatch's samples.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn predict(&self, batch: &Arc<Batch>) -> Result<Vec<f32>> {
        let whole = batch.clone();
        let own = self.all(move |rank| rank.predict(&whole))?.concat();
        Ok(self.everywhere("gather predictions", own)?.concat())
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        // Ranks that are well end when they get no more tasks.
        self.others.borrow_mut().tasks.clear();
        *self.first.borrow_mut() = None;
        for thread in self.others.borrow_mut().threads.drain(..) {
            // It guards itself, and nobody is there to act on an error.
            let _ = thread.join();
        }
    }
}
