//! What shares links, memories and cores at a time: activities as fluids with max-min fair rates.
//!
//! An activity has an amount (bytes, seconds, whatever its unit is) and takes some of each of its resources for a unit
//! of it. It flows from the moment at which all that it comes after has ended. All activities that flow at a time get
//! max-min fair rates (Bertsekas and Gallager, Data Networks, 1992, section 6.5.2): they grow together until a resource
//! is full; what takes of it keeps its rate, the others go on growing. When its amount has flowed, an activity is gone
//! from its sender; a latency later it has arrived.

/// What an activity comes after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// The last of this activity has left its resources.
    Gone(usize),
    /// And its latency has passed.
    Arrived(usize),
}

/// Something that flows.
#[derive(Debug, Clone, PartialEq)]
pub struct Activity {
    /// How much of it.
    pub amount: f64,
    /// Resources, each with how much of it a unit takes.
    pub takes: Vec<(usize, f64)>,
    /// From its last unit's end until it has arrived.
    pub latency_s: f64,
}

impl Activity {
    /// Something that takes no time: other activities come after it.
    pub const MOMENT: Self = Self { amount: 0.0, takes: Vec::new(), latency_s: 0.0 };
}

/// When an activity flowed, in seconds from the start.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Flowed {
    /// It began.
    pub began_s: f64,
    /// Its last unit left its resources.
    pub gone_s: f64,
    /// It arrived.
    pub arrived_s: f64,
}

/// Activities and what they share.
#[derive(Debug, Clone, PartialEq)]
pub struct Fluid {
    /// How much of each resource there is a second.
    rates: Vec<f64>,
    activities: Vec<Activity>,
    /// How many ends each activity waits for.
    waits: Vec<usize>,
    /// Who waits until an activity is gone, and until it has arrived.
    next: Vec<[Vec<usize>; 2]>,
}

/// The rate of what nothing limits, in units a second.
const AT_ONCE: f64 = 1e18;

impl Fluid {
    /// Nothing yet, on resources with so much a second each.
    ///
    /// # Panics
    /// When a resource has nothing to give.
    #[must_use]
    pub fn new(rates: Vec<f64>) -> Self {
        assert!(rates.iter().all(|rate| *rate > 0.0), "resources have something to give: {rates:?}");
        Self { rates, activities: Vec::new(), waits: Vec::new(), next: Vec::new() }
    }

    /// Adds an activity after others, and returns its number.
    ///
    /// # Panics
    /// When it comes after one that is not there yet, or takes of a resource that is not there.
    pub fn add(&mut self, activity: Activity, after: impl IntoIterator<Item = After>) -> usize {
        let number = self.activities.len();
        assert!(activity.takes.iter().all(|(resource, _)| *resource < self.rates.len()), "resources that are there");
        self.activities.push(activity);
        self.next.push([Vec::new(), Vec::new()]);
        let mut waits = 0;
        for after in after {
            let (earlier, end) = match after {
                After::Gone(earlier) => (earlier, 0),
                After::Arrived(earlier) => (earlier, 1),
            };
            assert!(earlier < number, "activities come after earlier ones");
            self.next[earlier][end].push(number);
            waits += 1;
        }
        self.waits.push(waits);
        number
    }

    /// How much of each resource all activities take together.
    #[must_use]
    pub fn taken(&self) -> Vec<f64> {
        self.taken_by(|_| true)
    }

    /// How much of each resource those activities take together whose numbers are asked for.
    #[must_use]
    pub fn taken_by(&self, is_asked: impl Fn(usize) -> bool) -> Vec<f64> {
        let mut taken = vec![0.0; self.rates.len()];
        for (_, activity) in self.activities.iter().enumerate().filter(|(number, _)| is_asked(*number)) {
            activity.takes.iter().for_each(|(resource, share)| taken[*resource] += share * activity.amount);
        }
        taken
    }

    /// How many activities there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.activities.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.activities.is_empty()
    }

    /// How much of each resource there is a second.
    #[must_use]
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// When each activity flows.
    #[must_use]
    pub fn run(&self) -> Vec<Flowed> {
        let start = (0..self.activities.len()).filter(|number| self.waits[*number] == 0).collect();
        self.at_rest().run(start)
    }

    /// The max-min fair rates of all activities while all of them flow, in units a second.
    #[must_use]
    pub fn fair(&self) -> Vec<f64> {
        let flow = |(number, activity): (usize, &Activity)| Flow { number, left: activity.amount, rate: AT_ONCE };
        let flows = self.activities.iter().enumerate().map(flow).collect();
        let mut all = Running { flows, changed: (0..self.rates.len()).collect(), ..self.at_rest() };
        all.share();
        all.flows.iter().map(|flow| flow.rate).collect()
    }

    fn at_rest(&self) -> Running<'_> {
        Running {
            fluid: self,
            waits: self.waits.clone(),
            flowed: vec![Flowed::default(); self.activities.len()],
            flows: Vec::new(),
            arrivals: Vec::new(),
            now: 0.0,
            changed: Vec::new(),
        }
    }
}

/// Activities on their way.
struct Running<'a> {
    fluid: &'a Fluid,
    waits: Vec<usize>,
    flowed: Vec<Flowed>,
    flows: Vec<Flow>,
    /// When what is gone arrives.
    arrivals: Vec<(f64, usize)>,
    now: f64,
    /// Resources of which something else is taken since rates were found.
    changed: Vec<usize>,
}

/// An activity that goes on.
struct Flow {
    number: usize,
    /// What is left of its amount.
    left: f64,
    /// Units a second.
    rate: f64,
}

impl Running<'_> {
    fn run(mut self, start: Vec<usize>) -> Vec<Flowed> {
        self.begin(start);
        while !self.flows.is_empty() || !self.arrivals.is_empty() {
            self.share();
            let ends = self.flows.iter().map(|flow| flow.left / flow.rate).fold(f64::INFINITY, f64::min);
            let comes = self.arrivals.iter().map(|(when, _)| when - self.now).fold(f64::INFINITY, f64::min);
            let step = ends.min(comes).max(0.0);
            self.now += step;
            // What ends at the same moment but for rounding ends together.
            let (now, soon) = (self.now, self.now * 1e-9 + 1e-15);
            let mut gone = Vec::new();
            self.flows.retain_mut(|flow| {
                flow.left -= step * flow.rate;
                let done = flow.left <= soon * flow.rate;
                if done {
                    gone.push(flow.number);
                }
                !done
            });
            let mut arrived = Vec::new();
            self.arrivals.retain(|(when, number)| {
                let here = *when <= now + soon;
                if here {
                    arrived.push(*number);
                }
                !here
            });
            let taken = gone.iter().flat_map(|number| &self.fluid.activities[*number].takes);
            self.changed.extend(taken.map(|(resource, _)| *resource));
            self.end(gone, arrived);
        }
        self.flowed
    }

    /// Begins activities; those of no amount end at once.
    fn begin(&mut self, ready: Vec<usize>) {
        let mut gone = Vec::new();
        for number in ready {
            self.flowed[number].began_s = self.now;
            let activity = &self.fluid.activities[number];
            if activity.amount > 0.0 {
                self.flows.push(Flow { number, left: activity.amount, rate: AT_ONCE });
                self.changed.extend(activity.takes.iter().map(|(resource, _)| *resource));
            } else {
                gone.push(number);
            }
        }
        if !gone.is_empty() {
            self.end(gone, Vec::new());
        }
    }

    /// Ends activities, and begins what has waited for them alone.
    fn end(&mut self, gone: Vec<usize>, mut arrived: Vec<usize>) {
        let mut ready = Vec::new();
        for &number in &gone {
            self.flowed[number].gone_s = self.now;
            let latency_s = self.fluid.activities[number].latency_s;
            match latency_s > 0.0 {
                true => self.arrivals.push((self.now + latency_s, number)),
                false => arrived.push(number),
            }
        }
        for (ended, end) in [(&gone, 0), (&arrived, 1)] {
            for &number in ended {
                if end == 1 {
                    self.flowed[number].arrived_s = self.now;
                }
                for &next in &self.fluid.next[number][end] {
                    self.waits[next] -= 1;
                    if self.waits[next] == 0 {
                        ready.push(next);
                    }
                }
            }
        }
        if !ready.is_empty() {
            self.begin(ready);
        }
    }

    /// What an activity takes, but for that of which it takes nothing.
    fn takes(&self, flow: usize) -> impl Iterator<Item = (usize, f64)> {
        self.fluid.activities[self.flows[flow].number].takes.iter().copied().filter(|(_, share)| *share > 0.0)
    }

    /// Flows whose rates may be other than they were: those that take of what has changed, and whoever shares a
    /// resource with such a one. Most ranks compute by themselves, so these are few.
    fn touched(&mut self) -> Vec<usize> {
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); self.fluid.rates.len()];
        for flow in 0..self.flows.len() {
            self.takes(flow).for_each(|(resource, _)| users[resource].push(flow));
        }
        let mut touched = vec![false; self.flows.len()];
        let mut found = Vec::new();
        let mut open = std::mem::take(&mut self.changed);
        while let Some(resource) = open.pop() {
            // Whoever comes here again finds nobody.
            for flow in std::mem::take(&mut users[resource]) {
                if !std::mem::replace(&mut touched[flow], true) {
                    found.push(flow);
                    open.extend(self.takes(flow).map(|(resource, _)| resource));
                }
            }
        }
        found
    }

    /// Finds the max-min fair rates of all flows.
    fn share(&mut self) {
        let mut grows = self.touched();
        let mut left = self.fluid.rates.clone();
        while !grows.is_empty() {
            let mut shares = vec![0.0; left.len()];
            for &flow in &grows {
                self.takes(flow).for_each(|(resource, share)| shares[resource] += share);
            }
            let fulls =
                left.iter().zip(&shares).map(|(left, share)| if *share > 0.0 { left / share } else { f64::INFINITY });
            let fulls: Vec<f64> = fulls.collect();
            let level = fulls.iter().copied().fold(f64::INFINITY, f64::min);
            let is_full = |resource: usize| fulls[resource] <= level * (1.0 + 1e-9);
            let full = |flow: &usize| self.takes(*flow).any(|(resource, _)| is_full(resource));
            let (stay, grow): (Vec<usize>, Vec<usize>) = grows.into_iter().partition(full);
            for flow in stay {
                self.takes(flow)
                    .for_each(|(resource, share)| left[resource] = (left[resource] - share * level).max(0.0));
                self.flows[flow].rate = level.min(AT_ONCE);
            }
            grows = grow;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::{Random, Stream};

    fn flow(amount: f64, takes: &[(usize, f64)]) -> Activity {
        Activity { amount, takes: takes.to_vec(), latency_s: 0.0 }
    }

    #[test]
    fn activities_share_what_they_take_and_come_after_each_other() {
        // Two share resource 0 until the smaller one is gone; the third takes of both resources, after it.
        let mut fluid = Fluid::new(vec![10.0, 2.0]);
        let large = fluid.add(flow(100.0, &[(0, 1.0)]), []);
        let small = fluid.add(Activity { latency_s: 3.0, ..flow(25.0, &[(0, 1.0)]) }, []);
        let last = fluid.add(flow(8.0, &[(0, 1.0), (1, 1.0)]), [After::Gone(small)]);
        let late = fluid.add(Activity::MOMENT, [After::Arrived(small), After::Gone(last)]);
        let flowed = fluid.run();
        assert_eq!((flowed[small].gone_s, flowed[small].arrived_s), (5.0, 8.0));
        // From second 5 on the large one has 8 of 10, because the last one gets but 2 of resource 1, until second 9.
        assert_eq!((flowed[last].began_s, flowed[last].gone_s), (5.0, 9.0));
        assert!((flowed[large].gone_s - (9.0 + (75.0 - 32.0) / 10.0)).abs() < 1e-9, "{:?}", flowed[large]);
        assert_eq!(flowed[late].began_s, 9.0);
        assert_eq!(fluid.taken(), [133.0, 8.0]);
    }

    #[test]
    fn a_resource_that_is_taken_more_of_is_full_sooner() {
        let mut fluid = Fluid::new(vec![1.0]);
        let (thin, thick) = (fluid.add(flow(1.0, &[(0, 1.0)]), []), fluid.add(flow(1.0, &[(0, 3.0)]), []));
        assert_eq!(fluid.fair(), [0.25, 0.25]);
        let flowed = fluid.run();
        // Both at a rate of 1/4.
        assert_eq!((flowed[thin].gone_s, flowed[thick].gone_s), (4.0, 4.0));
    }

    #[test]
    fn what_shares_nothing_changes_nothing() {
        // Whether something connects all activities, of which there is more than they take, makes no difference.
        let numbers = Random::new(7, Stream::Sample(0));
        let draw = |index: u64| numbers.uniform(index);
        let build = |connected: bool| {
            let mut rates: Vec<f64> = (0..6).map(|resource| 1.0 + draw(resource)).collect();
            rates.push(1e9);
            let mut fluid = Fluid::new(rates);
            for number in 0..200u64 {
                let part = |at: u64| draw(1000 + 10 * number + at);
                let mut takes = vec![((part(0) * 6.0) as usize, 0.5 + part(1))];
                takes.extend((part(2) < 0.3).then_some(((part(3) * 6.0) as usize, 1.0)));
                takes.extend(connected.then_some((6, 1e-3)));
                let after = (number > 4).then(|| After::Arrived((part(4) * number as f64) as usize));
                fluid.add(Activity { amount: part(5), takes, latency_s: 0.1 * part(6) }, after);
            }
            fluid.run()
        };
        for (alone, connected) in build(false).iter().zip(build(true)) {
            let apart = (alone.gone_s - connected.gone_s).abs();
            assert!(apart < 1e-6 * connected.gone_s, "{alone:?} {connected:?}");
        }
    }
}
