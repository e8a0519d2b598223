//! What the type of a single key cannot say: that layers fit each other and that numbers are in range.

use super::{
    Collective, Composition, Config, Determinism, Interaction, LookUps, LrScaling, ModelConfig, OptimizerName,
    THREADS_MAX, TrainConfig, Update, WireChoice,
};
use crate::base::error::{Error, Result};
use crate::base::units::Many;

/// Keys whose values do not go together, or one whose value is out of range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The keys.
    pub keys: Vec<&'static str>,
    /// What is wrong and what would be right.
    pub reason: String,
}

/// The widest layer or vector.
const WIDEST: usize = 1 << 20;

/// More tables than any model in the field has, and as many as are planned, placed and started within seconds.
const TABLES_MOST: usize = 100_000;

/// `Err` with these keys and this reason.
pub(super) fn fail<T>(keys: &[&'static str], reason: impl Into<String>) -> std::result::Result<T, Contradiction> {
    Err(Contradiction { keys: keys.to_vec(), reason: reason.into() })
}

/// Refuses a number outside of a range.
macro_rules! within {
    ($key:literal, $value:expr, $range:expr, $words:literal) => {
        if !$range.contains(&$value) {
            return fail(&[$key], format!("{} = {} must lie in {}", $key, $value, $words));
        }
    };
}

impl Config {
    /// As [`Config::contradiction`], for a configuration that comes from one place.
    ///
    /// # Errors
    /// [`Error::Config`] that names the origin and the key, what it is and what it should be.
    pub fn validate(&self, origin: &str) -> Result<()> {
        let told = |Contradiction { reason, .. }| Error::config(origin, reason);
        self.contradiction().map_err(told)
    }

    /// Refuses what is no model, no data or no training.
    ///
    /// # Errors
    /// The keys and the reason.
    pub fn contradiction(&self) -> std::result::Result<(), Contradiction> {
        self.model.contradiction()?;
        if !self.data.is_stored() && self.model.bottom.first() == Some(&0) {
            return fail(
                &["model.bottom", "data.source"],
                "model.bottom begins with 0, which leaves the number of dense features to a file's data: generated data \
                 take it from the model; say how many, or use model.bottom = [] for none",
            );
        }
        self.check_data()?;
        self.check_training()
    }

    fn check_data(&self) -> std::result::Result<(), Contradiction> {
        let data = &self.data;
        if data.is_stored() && data.path.is_empty() {
            return fail(&["data.source"], "data.source = \"tsv\" and \"files\" need data.path: use --data PATH");
        }
        within!("data.test_fraction", data.test_fraction, (0.0..1.0), "[0, 1)");
        within!("data.validation_fraction", data.validation_fraction, (0.0..1.0), "[0, 1)");
        data.check_held_out()?;
        for count in data.lookups.counts() {
            within!("data.lookups", *count, (1..=1 << 20), "[1, 2^20]");
        }
        let tables = self.model.rows.len();
        if let (false, LookUps::Each(counts)) = (data.is_stored() || tables == 0, &data.lookups)
            && counts.len() != tables
        {
            let reason = format!(
                "data.lookups has {} for the {} of model.rows: give one for each, or a single number for all",
                Many(counts.len() as u64, "number"),
                Many(tables as u64, "table")
            );
            return fail(&["data.lookups", "model.rows"], reason);
        }
        within!("data.shuffle_window", data.shuffle_window, (1..1 << 32), "[1, 2^32 - 1]");
        within!("data.max_line", data.max_line, (1..=1 << 30), "[1, 2^30]");
        within!("data.prefetch", data.prefetch, (1..=1024), "[1, 1024]");
        within!("data.days", data.days, (1..=366), "[1, 366]");
        within!("data.drift", data.drift, (0.0..=1.0), "[0, 1]");
        within!("data.zipf", data.zipf, (0.0..=10.0), "[0, 10]");
        Ok(())
    }

    fn check_training(&self) -> std::result::Result<(), Contradiction> {
        let train = &self.train;
        within!("train.batch", train.batch, (1..=1 << 31), "[1, 2^31]");
        within!("train.accumulate", train.accumulate, (1..=1 << 20), "[1, 2^20]");
        if train.minibatch() > 1 << 31 {
            return fail(
                &["train.batch", "train.accumulate"],
                format!(
                    "train.batch = {} times train.accumulate = {} are more than 2^31 samples a step",
                    train.batch, train.accumulate
                ),
            );
        }
        if let Some(part) = train.part.given() {
            within!("train.part", part, (1..=1 << 31), "[1, 2^31]");
        }
        within!("train.threads", train.threads, (0..=THREADS_MAX), "[0, 4096]");
        within!("train.eval_batch", train.eval_batch, (1..=1 << 31), "[1, 2^31]");
        // Before what would be offered in the place of an update: some optimizers leave no choice.
        self.check_optimizers()?;
        self.check_determinism()?;
        self.check_hot_rows()?;
        self.check_schedule()?;
        if train.epochs == 0 && train.steps == 0 {
            return fail(
                &["train.epochs", "train.steps"],
                "train.epochs and train.steps are both 0: nothing to train; use --epochs N or --steps N",
            );
        }
        within!("train.evals_per_epoch", train.evals_per_epoch, (0..=1 << 20), "[0, 2^20]");
        within!("train.target_auc", train.target_auc, (0.0..=1.0), "[0, 1]");
        train.check_patience()?;
        within!("train.checkpoint_minutes", train.checkpoint_minutes, (0.0..=1e6), "[0, 10^6]");
        Ok(())
    }
}

impl Config {
    /// Checks that what is to have the same bits can have them.
    fn check_determinism(&self) -> std::result::Result<(), Contradiction> {
        let train = &self.train;
        if train.determinism != Determinism::None && matches!(train.update, Update::Atomic | Update::Rtm) {
            let name = train.update.name();
            return fail(
                &["train.update", "train.determinism"],
                format!(
                    "train.update = \"{name}\" leaves the order of sums to chance, so that no two runs need agree: use \
                     auto, serial, race-free or sorted, or allow it with train.determinism = \"none\" (--determinism none)"
                ),
            );
        }
        if train.determinism == Determinism::Ranks && train.wire == WireChoice::Bf16 {
            return fail(
                &["train.wire", "train.determinism"],
                "train.wire = \"bf16\" rounds what ranks send each other, and how much that is depends on their number: use \
                 train.wire = \"auto\", or train.determinism = \"run\"",
            );
        }
        if train.determinism == Determinism::Ranks && train.collective != Collective::Auto {
            return fail(
                &["train.collective", "train.determinism"],
                format!(
                    "train.collective = \"{}\" has no effect with train.determinism = \"ranks\", whose sums in a fixed order have an \
                     exchange of their own: leave it away, or use train.determinism = \"run\" (--determinism run)",
                    train.collective.name()
                ),
            );
        }
        Ok(())
    }

    /// Checks that hot rows are either named or found.
    fn check_hot_rows(&self) -> std::result::Result<(), Contradiction> {
        let train = &self.train;
        if !train.hot_set.is_empty() && train.hot_budget.given().is_some() {
            return fail(
                &["train.hot_set", "train.hot_budget"],
                "train.hot_set names the hot rows, which are as many as they are: leave train.hot_budget away, or have them \
                 told from a sample of the data by leaving train.hot_set away",
            );
        }
        within!("train.hot_revise", train.hot_revise, (0..1 << 32), "[0, 2^32 - 1]");
        if !train.hot_set.is_empty() && train.hot_revise > 0 {
            return fail(
                &["train.hot_set", "train.hot_revise"],
                "train.hot_set names the hot rows, which stay as they are: leave train.hot_revise away, or have hot rows told from \
                 the data by leaving train.hot_set away",
            );
        }
        Ok(())
    }

    /// Checks that each part of the model has an optimizer that can move it.
    fn check_optimizers(&self) -> std::result::Result<(), Contradiction> {
        let train = &self.train;
        if self.model.weighs_rows() && !matches!(train.update, Update::Auto | Update::Sorted) {
            return fail(
                &["model.weighted_pooling", "train.update"],
                "model.weighted_pooling = \"learned\" sums a row's gradients before it moves the row and its weight, for which \
                 look-ups are sorted: use train.update = \"auto\" or \"sorted\"",
            );
        }
        if train.optimizer_rows != OptimizerName::Sgd && !matches!(train.update, Update::Auto | Update::Sorted) {
            return fail(
                &["train.optimizer_rows", "train.update"],
                "train.optimizer_rows sums a row's gradients before it moves the row, for which look-ups are sorted: \
                 use train.update = \"auto\" or \"sorted\", or train.optimizer_rows = \"sgd\"",
            );
        }
        if matches!(train.optimizer_wide, OptimizerName::RowwiseAdagrad | OptimizerName::Lamb) {
            return fail(
                &["train.optimizer_wide"],
                format!(
                    "train.optimizer_wide = \"{}\" moves a whole row or layer alike, and a wide part's weights stand alone: use \
                     ftrl, adagrad, sgd, momentum or adam",
                    train.optimizer_wide.name()
                ),
            );
        }
        if train.optimizer == OptimizerName::RowwiseAdagrad {
            return fail(
                &["train.optimizer"],
                "train.optimizer = \"rowwise-adagrad\" is for the rows of tables: use train.optimizer_rows = \"rowwise-adagrad\" \
                 (--optimizer-rows), and for layers train.optimizer = \"adagrad\"",
            );
        }
        if train.optimizer_rows == OptimizerName::Lamb {
            return fail(
                &["train.optimizer_rows"],
                "train.optimizer_rows = \"lamb\" needs the norm of a whole tensor, and a step meets some rows: use \
                 train.optimizer = \"lamb\" (--optimizer) for the layers, and for rows sgd, momentum, adagrad, \
                 rowwise-adagrad, adam or ftrl",
            );
        }
        within!("train.momentum", train.momentum, (0.0..1.0), "[0, 1)");
        within!("train.beta1", train.beta1, (0.0..1.0), "[0, 1)");
        within!("train.beta2", train.beta2, (0.0..1.0), "[0, 1)");
        within!("train.weight_decay", train.weight_decay, (0.0..=1e6), "[0, 10^6]");
        within!("train.clip_norm", train.clip_norm, (0.0..=1e30), "[0, 10^30]");
        within!("train.initial_accumulator", train.initial_accumulator, (0.0..=1e6), "[0, 10^6]");
        within!("train.ftrl_beta", train.ftrl_beta, (0.0..=1e6), "[0, 10^6]");
        within!("train.l1", train.l1, (0.0..=1e6), "[0, 10^6]");
        within!("train.l2", train.l2, (0.0..=1e6), "[0, 10^6]");
        if let Some(eps) = train.eps.given() {
            // Smaller ones are none in 32 bits.
            within!("train.eps", eps, (1e-37..=1.0), "[1e-37, 1]");
        }
        Ok(())
    }
}

impl Config {
    fn check_schedule(&self) -> std::result::Result<(), Contradiction> {
        let train = &self.train;
        let rates = [("train.lr_rows", train.lr_rows), ("train.lr_wide", train.lr_wide)];
        let rates = rates.map(|(key, rate)| (key, rate.or(train.lr)));
        for (key, lr) in [("train.lr", train.lr)].into_iter().chain(rates) {
            if !(lr.is_finite() && lr >= 0.0) {
                return fail(&[key], format!("{key} = {lr} must be a finite number that is not negative"));
            }
        }
        if train.lr_scaling != LrScaling::None && train.lr_batch == 0 {
            return fail(
                &["train.lr_scaling", "train.lr_batch"],
                "train.lr_scaling needs to know for how many samples a minibatch train.lr was chosen: set train.lr_batch",
            );
        }
        within!("train.lr_batch", train.lr_batch, (0..=1 << 31), "[0, 2^31]");
        within!("train.decay_power", train.decay_power, (0.0..=100.0), "[0, 100]");
        within!("train.decay_factor", train.decay_factor, (0.0..=1.0), "[0, 1]");
        Ok(())
    }
}

impl TrainConfig {
    /// Checks that no rate falls before it has risen, as facebookresearch/dlrm does; runs that were begun otherwise go
    /// on.
    ///
    /// # Errors
    /// [`Error::Config`] that names the key.
    pub fn check_ends_of_warm_up(&self) -> Result<()> {
        for (of, [warmup, start, decay]) in ["", "_rows"].into_iter().zip(self.courses()) {
            if decay > 0 && start < warmup {
                let reason = format!(
                    "the rate would fall from step {start} on, before train.warmup_steps{of} = {warmup} is over: set it to {warmup} \
                     or more"
                );
                return Err(Error::config(format!("train.decay_start{of}"), reason));
            }
        }
        Ok(())
    }
}

impl ModelConfig {
    fn check_wide(&self) -> std::result::Result<(), Contradiction> {
        within!("model.wide_buckets", self.wide_buckets, (1..=u64::from(u32::MAX)), "[1, 2^32 - 1]");
        if let Some(cross) = self.wide_crosses.iter().find(|cross| cross.len() < 2) {
            let reason = format!(
                "model.wide_crosses has {cross:?}: a cross is of two columns or more, e.g. [[\"C1\", \"C2\"]]; the wide part has \
                 weights for single columns anyway"
            );
            return fail(&["model.wide_crosses"], reason);
        }
        if self.wide && self.dim == 1 {
            return fail(
                &["model.dim", "model.wide"],
                "model.dim = 1 with model.wide = true: a vector of one number is what the wide part has for each category; use a \
                 larger model.dim, or leave model.wide away",
            );
        }
        let twice = |cross: &&Vec<String>| cross.iter().enumerate().any(|(at, name)| cross[..at].contains(name));
        if let Some(cross) = self.wide_crosses.iter().find(twice) {
            return fail(&["model.wide_crosses"], format!("model.wide_crosses has {cross:?}: a column is there twice"));
        }
        Ok(())
    }
}

impl ModelConfig {
    fn check_series(&self) -> std::result::Result<(), Contradiction> {
        within!("model.ts_length", self.ts_length, (0..=1024), "[0, 1024]");
        if self.ts_length == 0 {
            return Ok(());
        }
        if self.wide {
            return fail(
                &["model.wide", "model.ts_length"],
                "model.wide = true with model.ts_length above 0: no model has both a wide part and attention over a time series; leave \
                 one away",
            );
        }
        if self.md_temperature > 0.0 {
            return fail(
                &["model.md_temperature", "model.ts_length"],
                "model.md_temperature above 0 with model.ts_length above 0: steps of a time series are as wide as model.dim; leave one \
                 away",
            );
        }
        if !self.layers.is_empty() {
            return Ok(());
        }
        if self.arch_mlp.last() != Some(&1) {
            let reason = format!("model.arch_mlp = {:?} must end in 1, the click probability", self.arch_mlp);
            return fail(&["model.arch_mlp"], reason);
        }
        if self.top.is_empty() {
            let reason = "model.top = []: each step of a time series becomes the outputs of a layer, e.g. [15, 15]";
            return fail(&["model.top", "model.ts_length"], reason);
        }
        for (key, layers) in [("model.tsl_mlp", &self.tsl_mlp), ("model.arch_mlp", &self.arch_mlp)] {
            if let Some(width) = layers.iter().find(|width| !(1..=1 << 20).contains(*width)) {
                return fail(&[key], format!("{key} = {layers:?}: a layer of {width} outputs; 1 to 2^20 are possible"));
            }
        }
        Ok(())
    }

    fn check_quotients(&self) -> std::result::Result<(), Contradiction> {
        if self.qr_collisions == 0 {
            return Ok(());
        }
        within!("model.qr_collisions", self.qr_collisions, (2..=1 << 20), "0 or [2, 2^20]");
        let others = [
            ("model.wide", "model.wide = true", self.wide),
            ("model.ts_length", "model.ts_length above 0", self.ts_length > 0),
            ("model.md_temperature", "model.md_temperature above 0", self.md_temperature > 0.0),
        ];
        if let Some((key, other, _)) = others.iter().find(|(.., there)| *there) {
            return fail(
                &["model.qr_collisions", key],
                format!(
                    "model.qr_collisions above 0 with {other}: no model has both tables of quotients and that; leave one away"
                ),
            );
        }
        if self.weighs_rows() {
            return fail(
                &["model.weighted_pooling", "model.qr_collisions"],
                "model.weighted_pooling = \"learned\" with model.qr_collisions above 0: values that share rows have no weight of \
                 their own; leave one away",
            );
        }
        if self.qr_operation == Composition::Concat && !self.dim.is_multiple_of(2) {
            let reason = format!(
                "model.dim = {} with model.qr_operation = \"concat\": two rows side by side make a vector of an even number of columns",
                self.dim
            );
            return fail(&["model.dim", "model.qr_operation"], reason);
        }
        Ok(())
    }

    fn contradiction(&self) -> std::result::Result<(), Contradiction> {
        if self.dim == 0 || self.dim > WIDEST {
            let reason =
                format!("model.dim = {}: a row of a table has at least one column, and at most 2^20", self.dim);
            return fail(&["model.dim"], reason);
        }
        if self.layers.is_empty() {
            self.check_built_in()?;
        } else {
            let columns = Some(&*self.columns).filter(|columns| !columns.is_empty());
            if let Err(reason) = self.widths(columns) {
                return fail(&["model.layers"], format!("model.layers: {reason}"));
            }
        }
        within!("model.md_temperature", self.md_temperature, (0.0..=10.0), "[0, 10]");
        self.check_series()?;
        self.check_quotients()?;
        if self.rows.len() > TABLES_MOST {
            let reason = format!("model.rows: {} tables are more than {TABLES_MOST}, the most", self.rows.len());
            return fail(&["model.rows"], reason);
        }
        self.check_columns()?;
        self.check_wide()?;
        within!("model.loss_threshold", self.loss_threshold, (0.0..0.5), "[0, 0.5)");
        if let Some(table) = self.rows.iter().position(|&rows| rows == 0 || rows > u64::from(u32::MAX)) {
            return fail(
                &["model.rows"],
                format!("model.rows: table {table} has {} rows; 1 to 2^32 - 1 are possible", self.rows[table]),
            );
        }
        if !self.loss_weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0) {
            return fail(
                &["model.loss_weights"],
                format!("model.loss_weights = {:?} must be finite and not negative", self.loss_weights),
            );
        }
        Ok(())
    }

    fn check_columns(&self) -> std::result::Result<(), Contradiction> {
        let (names, tables) = (&self.columns, self.rows.len());
        if !names.is_empty() && tables > 0 && names.len() != tables {
            let reason = format!(
                "model.columns has {} names and model.rows {} tables: name all of them, or none",
                names.len(),
                tables
            );
            return fail(&["model.columns", "model.rows"], reason);
        }
        let mut seen = std::collections::HashSet::new();
        match names.iter().find(|name| name.is_empty() || !seen.insert(*name)) {
            Some(name) if name.is_empty() => fail(&["model.columns"], "model.columns: a column without a name"),
            Some(name) => fail(&["model.columns"], format!("model.columns: two columns are called {name}")),
            None => Ok(()),
        }
    }

    /// What the keys of a built-in network must be.
    fn check_built_in(&self) -> std::result::Result<(), Contradiction> {
        if self.bottom.len() == 1 && self.interaction == Interaction::Dot {
            return fail(
                &["model.bottom", "model.interaction"],
                format!(
                    "model.bottom = {:?}: the dot interaction needs the number of dense features and at least one layer, e.g. \
                     [{}, {}]; [] means no dense features",
                    self.bottom, self.bottom[0], self.dim
                ),
            );
        }
        if self.top.contains(&0) {
            return fail(&["model.top"], format!("model.top = {:?}: a layer of 0 outputs", self.top));
        }
        if self.bottom.iter().skip(1).any(|&width| width == 0) {
            let reason = format!("model.bottom = {:?}: only the number of dense features may be 0", self.bottom);
            return fail(&["model.bottom"], reason);
        }
        let widest = self.bottom.iter().chain(&self.top).copied().chain([self.dim]).max().unwrap_or(0);
        if widest > WIDEST {
            return fail(
                &["model.bottom", "model.top", "model.dim"],
                format!("model.bottom, model.top and model.dim: {widest} is more than 2^20, the widest layer"),
            );
        }
        if self.ts_length == 0 && self.top.last() != Some(&1) {
            return fail(&["model.top"], format!("model.top = {:?} must end in 1, the click probability", self.top));
        }
        if let (Interaction::Dot, Some(&out)) = (self.interaction, self.bottom.last())
            && out != self.dim
        {
            return fail(
                &["model.bottom", "model.dim", "model.interaction"],
                format!(
                    "model.bottom ends in {out} but model.dim is {}: the dot interaction multiplies them, so they must be \
                     equal (or use model.interaction = \"cat\" or \"dcn\")",
                    self.dim
                ),
            );
        }
        within!("model.cross_layers", self.cross_layers, (1..=64), "[1, 64]");
        within!("model.cross_rank", self.cross_rank, (1..=1 << 20), "[1, 2^20]");
        Ok(())
    }
}
