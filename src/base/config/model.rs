//! What follows from the keys of a model: how many tables and vectors there are, and how wide they are.

use super::{Composition, LayerKind, Loss, ModelConfig, Precision, Triangle, WeightedPooling};

impl ModelConfig {
    /// Dense features of a sample, where they are the model's to say: 0 before [`ModelConfig::follow`] where they are
    /// not.
    #[must_use]
    pub fn dense(&self) -> usize {
        self.bottom.first().map_or(0, |inputs| inputs.saturating_sub(self.positions()))
    }

    /// Inputs of the bottom MLP before the dense features: the position of a step.
    #[must_use]
    pub const fn positions(&self) -> usize {
        if self.ts_length > 0 { 1 } else { 0 }
    }

    /// Steps of a sample: 1 without a time series.
    #[must_use]
    pub const fn steps(&self) -> usize {
        self.ts_length + 1
    }

    /// Of so many tables those whose rows are vectors of the network's features. Those of a wide part follow: one for
    /// each of the former, then one for each cross.
    #[must_use]
    pub fn deep_tables(&self, tables: usize) -> usize {
        if self.wide { (tables - self.wide_crosses.len()) / 2 } else { tables }
    }

    /// Whether rows have learned weights, by which look-ups multiply them; those of a wide part have none.
    #[must_use]
    pub const fn weighs_rows(&self) -> bool {
        matches!(self.weighted_pooling, WeightedPooling::Learned)
    }

    /// Of so many tables those whose rows have learned weights: the first ones, all but a wide part's, or none.
    #[must_use]
    pub fn weighing_tables(&self, tables: usize) -> usize {
        if self.weighs_rows() { self.deep_tables(tables) } else { 0 }
    }

    /// Which of the data's columns, of so many values, are looked up in two tables: of quotients, in the column's
    /// place, and of remainders, behind all columns.
    #[must_use]
    pub fn composed(&self, rows: &[u64]) -> Vec<usize> {
        let is_composed = |rows: u64| self.qr_collisions > 0 && rows > self.qr_threshold.max(self.qr_collisions);
        (0..rows.len()).filter(|&column| is_composed(rows[column])).collect()
    }

    /// The same of the data that the model has been told of ([`ModelConfig::rows`]).
    #[must_use]
    pub fn own_composed(&self) -> Vec<usize> {
        self.composed(&self.rows)
    }

    /// The names of so many columns: the model's own, or C1, C2 and so on.
    #[must_use]
    pub fn column_names(&self, count: usize) -> Vec<String> {
        if self.columns.len() == count { self.columns.clone() } else { (1..=count).map(|n| format!("C{n}")).collect() }
    }

    /// Has layers of one's own ([`ModelConfig::layers`]), and of the keys of a built-in network only what they leave.
    pub fn follow_layers(&mut self) {
        self.wide = self.layers.iter().any(|layer| layer.kind == LayerKind::Wide);
        self.bottom.truncate(1);
        self.triangle = Triangle::Lower;
    }

    /// Tables of a model of so many columns.
    #[must_use]
    pub fn tables(&self, columns: usize) -> usize {
        let wide = if self.wide { columns + self.wide_crosses.len() } else { 0 };
        columns + self.own_composed().len() + wide
    }

    /// Vectors that a sample has of so many tables.
    #[must_use]
    pub fn vectors(&self, tables: usize) -> usize {
        self.deep_tables(tables) - self.own_composed().len()
    }

    /// Columns of each of the tables with these rows: those of a wide part have one. With mixed dimensions, by
    /// facebookresearch/dlrm's `md_solver`; tables whose rows are put beside each other have half of them.
    #[must_use]
    pub fn dims(&self, rows: &[u64]) -> Vec<usize> {
        if self.qr_collisions > 0 && self.qr_operation == Composition::Concat {
            let (composed, vectors) = (self.own_composed(), self.vectors(rows.len()));
            let halved = |table: &usize| *table >= vectors || composed.contains(table);
            return (0..rows.len()).map(|table| self.dim >> usize::from(halved(&table))).collect();
        }
        let (deep, wide) = rows.split_at(self.deep_tables(rows.len()));
        let least = deep.iter().copied().min().unwrap_or(1);
        let dim_of = |&rows: &u64| {
            if self.md_temperature == 0.0 || rows <= self.md_threshold.max(least) {
                return self.dim;
            }
            let ruled = self.dim as f64 * libm::pow(least as f64 / rows as f64, self.md_temperature);
            let columns = ruled.max(1.0).round_ties_even();
            let columns = if self.md_round_dims { libm::exp2(libm::log2(columns).round_ties_even()) } else { columns };
            (columns as usize).min(self.dim)
        };
        deep.iter().map(dim_of).chain(wide.iter().map(|_| 1)).collect()
    }

    /// What weights of layers are kept in where rows are kept in `precision`. Those of a time series stay in 32 bits:
    /// most are narrower than what is multiplied at once, so that bfloat16 gains nothing, and what steps are told apart
    /// by is small.
    #[must_use]
    pub const fn layer_precision(&self, precision: Precision) -> Precision {
        if self.ts_length == 0 { precision } else { Precision::F32 }
    }

    /// What probabilities are, where the loss weighs the two classes differently: those of clicks that come as much
    /// more often; nothing where they are those of the data.
    #[must_use]
    pub fn reweighed(&self) -> Option<String> {
        let [none, click] = self.loss_weights;
        if self.loss != Loss::Wbce || none == click || none == 0.0 || click == 0.0 {
            return None;
        }
        let (ratio, shift) = (click / none, libm::log(f64::from(none) / f64::from(click)));
        Some(format!(
            "model.loss = \"wbce\" with model.loss_weights = [{none}, {click}] has the model give {ratio} times the odds of \
             clicks, on which log loss, NE and calibration depend, but not AUC: add {shift:.4} to each logit for those of the \
             data (octorec guide models)"
        ))
    }

    /// Takes from the data what the model leaves to them: the number of dense features, and the name and the rows of
    /// each table.
    pub fn follow(&mut self, dense: usize, columns: Vec<String>, rows: Vec<u64>) {
        let inputs = self.positions() + dense;
        match self.bottom.first_mut() {
            Some(0) if inputs == 0 => self.bottom.clear(),
            Some(first) if *first == 0 => *first = inputs,
            _ => (),
        }
        (self.columns, self.rows) = (columns, rows);
    }
}
