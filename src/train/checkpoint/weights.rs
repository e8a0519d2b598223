//! The tensors of a checkpoint: into the ranks of a model, to whoever exports them, or looked up where they are.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use safetensors::tensor::Dtype;
use twox_hash::XxHash3_64;

use super::floats::Floats;
use super::{Checkpoint, PIECE};
use crate::base::config::ModelConfig;
use crate::base::units::{Count, Many};
use crate::base::{Error, Result, interrupt};
use crate::data::Growth;
use crate::embedding::TableTensor;
use crate::model::{Parameter, Project, StoredTables, TensorSlot, Weights, is_of_model};
use crate::optim::ParamGroup;
use crate::train::Ranks;
use crate::train::rank::Rank;
use crate::train::tensor_file::REMEDY;

/// A tensor of a table whose column has grown since a file was written.
struct Grown<'a> {
    /// As the file has it.
    filed: Parameter,
    column: &'a Growth,
    /// Whether its rows are those of quotients, of which none is that of unseen values alone.
    is_composed: bool,
}

/// Takes some rows of a tensor, by their numbers.
type TakeRows<'a> = &'a mut dyn FnMut(Range<usize>, &[f32]) -> Result<()>;

impl Checkpoint<'_> {
    /// Whether it has what the ranks' optimizers keep of layers, and of rows; `None` of those that keep nothing.
    ///
    /// # Errors
    /// When a rank has failed.
    pub fn has_moments(&self, ranks: &Ranks) -> Result<[Option<bool>; 2]> {
        let kept = self.moments(ranks, &ranks.parameters()?);
        Ok(kept.map(|(moments, found)| (!moments.is_empty()).then_some(found)))
    }

    /// What the optimizers of layers and of rows keep beside these tensors, each with whether the file has it: some of
    /// every parameter group's, as those of a wide part have an optimizer of their own. All layers count their updates
    /// together, and so do all rows, so that no group can begin anew without the other.
    fn moments(&self, ranks: &Ranks, of: &[Parameter]) -> [(Vec<Parameter>, bool); 2] {
        let (rows, layers) = ranks.moments(of).into_iter().partition(Parameter::is_of_table);
        [layers, rows].map(|moments: Vec<Parameter>| {
            // All of them count their updates: that alone is not theirs.
            let of = |group| moments.iter().filter(move |moment| moment.group == group && !moment.counts_updates());
            let has = |moment: &Parameter| self.metadata.info(&moment.name).is_some();
            let found = ParamGroup::ALL.into_iter().all(|group| of(group).next().is_none() || of(group).any(has));
            (moments, found)
        })
    }

    /// Overwrites every tensor of the ranks' model, piece by piece, and what the optimizers of layers or of rows keep
    /// if the file has it. Tables that are looked up where they are ([`Checkpoint::stored_tables`]) are not
    /// read; their hashes are [`Checkpoint::check_stored`]'s to check. Of several machines, which all do so at the same
    /// time, each reads and checks the tables of which it has a part.
    ///
    /// # Errors
    /// When a tensor is missing, is damaged, has another shape or type, or is one that the model does not have, and
    /// when another machine has another file.
    pub fn load_into(&self, ranks: &Ranks) -> Result<()> {
        self.load(ranks, &[])
    }

    /// As [`Checkpoint::load_into`], where a run begins with this model and its data have added values to the
    /// vocabulary: `growth` says to which of the columns. Their tables' rows come first, and the last one, where it is
    /// that of unseen values, stays the last; new rows, with what the optimizer keeps of them, begin as those of a new
    /// model by this seed, and so do all of a column whose only row was nobody's.
    ///
    /// # Errors
    /// As [`Checkpoint::load_into`].
    pub fn begin(&self, ranks: &Ranks, growth: &[Growth], seed: u64) -> Result<()> {
        if growth.iter().any(|column| column.new > 0) {
            ranks.initialise(seed)?;
        }
        self.load(ranks, growth)
    }

    fn load(&self, ranks: &Ranks, growth: &[Growth]) -> Result<()> {
        self.check_everywhere(ranks)?;
        let mut parameters = ranks.parameters()?;
        self.check_tensor_names(&parameters, &ranks.setup.config)?;
        let kept = self.moments(ranks, &parameters).into_iter().filter(|(_, found)| *found);
        let kept: Vec<_> = kept.flat_map(|(moments, _)| moments).collect();
        parameters.extend(kept);
        let mut updates: [Option<f32>; 2] = [None; 2];
        let (stored, held) = (ranks.stored_tables()?, ranks.held_tables());
        for parameter in &parameters {
            let grown = self.grown(parameter, growth, &ranks.setup.config);
            let filed = grown.as_ref().map_or(parameter, |grown| &grown.filed);
            let floats = self.tensor(filed)?;
            let stays = match parameter.slot {
                TensorSlot::Table(table, TableTensor::Weight) => !held[table.index()] || stored[table.index()],
                TensorSlot::Table(table, TableTensor::Moment(_) | TableTensor::RowMoment) => !held[table.index()],
                // Every machine reads all of these.
                TensorSlot::Table(_, TableTensor::RowWeight | TableTensor::RowWeightMoment(_))
                | TensorSlot::Layer(..)
                | TensorSlot::RowUpdates
                | TensorSlot::LayerUpdates => false,
            };
            if stays || grown.as_ref().is_some_and(|grown| grown.column.had_nothing()) {
                continue;
            }
            if parameter.counts_updates() {
                self.check_updates(parameter, floats, &mut updates[usize::from(parameter.is_of_table())])?;
            }
            let unseen = grown.as_ref().is_some_and(|grown| grown.column.unseen_row && !grown.is_composed);
            self.pieces(filed, floats, &mut |rows, values| {
                let moved = usize::from(unseen && rows.end == filed.rows());
                let (values, last) = values.split_at(values.len() - moved * filed.columns());
                ranks.import_rows(parameter, rows.start..rows.end - moved, values)?;
                let end = parameter.rows();
                if moved > 0 { ranks.import_rows(parameter, end - 1..end, last) } else { Ok(()) }
            })?;
        }
        // Ranks write copies of hot rows together, those of a machine that has read no table too.
        ranks.each(Rank::overwrite_copies)?;
        // Machines read as quickly as their disks do.
        ranks.meet("load a checkpoint")
    }

    /// What [`Checkpoint::load_into`] takes of it and leaves, in one line.
    ///
    /// # Errors
    /// When a rank has failed.
    pub fn told(&self, ranks: &Ranks) -> Result<String> {
        /// Tensors that are left which are named.
        const NAMED: usize = 3;
        let parameters = ranks.parameters()?;
        let [layers, rows] = self.moments(ranks, &parameters);
        let kept = [("layers", layers), ("rows", rows)];
        let state =
            kept.iter().filter(|(_, (moments, _))| !moments.is_empty()).map(|(of, (moments, found))| match found {
                true => format!("{} of the optimizer of {of}", Many(moments.len() as u64, "tensor")),
                false => format!("nothing of the optimizer of {of}, which begins anew"),
            });
        let is_half = |of: &&Parameter| {
            self.metadata.info(&of.name).is_some_and(|tensor| matches!(tensor.dtype, Dtype::BF16 | Dtype::F16))
        };
        let halves = match parameters.iter().filter(is_half).count() {
            0 => String::new(),
            halves => format!(" ({} of them of 16 bits, widened)", Count(halves as u64)),
        };
        let weights = format!("{} of weights{halves}", Many(parameters.len() as u64, "tensor"));
        let taken: Vec<_> = std::iter::once(weights).chain(state).collect();
        let of_model = parameters.iter().chain(kept.iter().flat_map(|(_, (moments, found))| {
            // What the file has not is not left.
            moments.iter().filter(|_| *found)
        }));
        let known: HashSet<&str> = of_model.map(|parameter| &*parameter.name).collect();
        let mut left = self.metadata.offset_keys();
        left.retain(|name| !known.contains(&name[..]));
        left.sort_unstable();
        let more = if left.len() > NAMED { ", ..." } else { "" };
        let left = match &left[..] {
            [] => String::new(),
            names => format!(
                "; left aside: {} ({}{more})",
                Many(names.len() as u64, "tensor"),
                names[..names.len().min(NAMED)].join(", ")
            ),
        };
        Ok(taken.join(", ") + &left)
    }

    /// Checks, before there are ranks, that its weights are those of a model whose tables have so many rows each.
    ///
    /// # Errors
    /// As [`Checkpoint::load_into`], but for what is damaged.
    pub fn check_tensors(&self, model: &ModelConfig, rows: &[u64]) -> Result<()> {
        let parameters: Vec<Parameter> = Weights::of(model, rows).tensors().cloned().collect();
        self.check_tensor_names(&parameters, model)?;
        parameters.iter().try_for_each(|of| self.tensor(of).map(|_| ()))
    }

    /// Checks that its tensors are among these of a model, by their names.
    fn check_tensor_names(&self, parameters: &[Parameter], model: &ModelConfig) -> Result<()> {
        self.check_project_of(parameters, model)?;
        let tables = parameters.iter().filter(|parameter| parameter.table().is_some()).count();
        // Searched by hash: there may be many thousands of tables.
        let known: HashSet<&str> = parameters.iter().map(|parameter| &*parameter.name).collect();
        let names = self.metadata.offset_keys();
        names.into_iter().find(|name| is_of_model(name) && !known.contains(&name[..])).map_or(Ok(()), |name| {
            Err(self.fail(format!(
                "tensor {name} has no place in the model ({tables} tables, see the model section of the configuration)",
            )))
        })
    }

    /// Checks that its tensors are called as those of the ranks' model are.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] with the keys by which they are not.
    pub fn check_project(&self, ranks: &Ranks) -> Result<()> {
        self.check_project_of(&ranks.parameters()?, &ranks.setup.config)
    }

    fn check_project_of(&self, parameters: &[Parameter], now: &ModelConfig) -> Result<()> {
        let first = |mut names: Vec<String>| {
            names.sort_unstable();
            names.into_iter().find_map(|name| Some((Project::of_name(&name)?, name)))
        };
        let here = first(parameters.iter().map(|parameter| parameter.name.clone()).collect());
        let Some(((here, ours), (there, theirs))) = here.zip(first(self.metadata.offset_keys())) else { return Ok(()) };
        if here == there || self.metadata.offset_keys().iter().any(|name| Project::of_name(name) == Some(here)) {
            return Ok(());
        }
        let before = self.sound_header().map(|header| &header.config.model);
        let is_other =
            |differ: fn(&ModelConfig, &ModelConfig) -> bool| before.is_some_and(|before| differ(before, now));
        let keys = [
            ("model.interaction", is_other(|a, b| a.interaction != b.interaction)),
            ("model.triangle", is_other(|a, b| a.triangle != b.triangle)),
            ("model.ts_length", is_other(|a, b| a.ts_length != b.ts_length)),
            ("model.layers", is_other(|a, b| a.layers != b.layers)),
        ];
        let keys: Vec<_> = keys.into_iter().filter(|(_, is_other)| *is_other).map(|(key, _)| key).collect();
        let remedy = match keys.is_empty() {
            // Another program's, or renamed since.
            true => format!("such names are those with {}", there.keys()),
            false => format!("{} must be as where it was trained", keys.join(" and ")),
        };
        Err(self.fail(format!(
            "has tensors by the names of {} ({theirs}), and this model's are those of {} ({ours}): {remedy}",
            there.title(),
            here.title(),
        )))
    }

    /// Checks that all machines have this file: each may have one of its own by the same name.
    fn check_everywhere(&self, ranks: &Ranks) -> Result<()> {
        if ranks.world().machines() == 1 {
            return Ok(());
        }
        // The head of octorec's own files has the hashes of all tensors.
        let digest = XxHash3_64::oneshot(&self.head);
        let step = self.sound_header().map_or(String::new(), |header| format!("of step {}, ", header.progress.step));
        let own = format!("{step}of {} bytes, with head {digest:016x}", self.bytes.len());
        let all = ranks.everywhere("compare checkpoints", own.into_bytes())?;
        let Some(other) = all.iter().position(|theirs| *theirs != all[0]) else { return Ok(()) };
        let [there, here] = [&all[other], &all[0]].map(|told| String::from_utf8_lossy(told));
        Err(self.fail(format!(
            "{} has another checkpoint than {}, one {there} where that has one {here}: copy the \
             one that is meant to all machines, or name a folder that all see",
            ranks.world().name(other),
            ranks.world().name(0)
        )))
    }

    /// Gives `each` all rows of a tensor of the model, piece by piece in their order.
    ///
    /// # Errors
    /// As [`Checkpoint::load_into`], and those of `each`.
    pub(in crate::train) fn read(&self, of: &Parameter, each: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        self.pieces(of, self.tensor(of)?, &mut |_, values| each(values))
    }

    /// The rows of tensors by these names; nothing where there is none.
    pub(in crate::train) fn rows(&self, names: &[String]) -> Vec<Option<usize>> {
        names.iter().map(|name| self.rows_of(name)).collect()
    }

    fn rows_of(&self, name: &str) -> Option<usize> {
        self.metadata.info(name)?.shape.first().copied()
    }

    /// A tensor of a table as the file has it, where its column has grown by these values since and the file has the
    /// rows that it had before.
    fn grown<'a>(&self, of: &Parameter, growth: &'a [Growth], model: &ModelConfig) -> Option<Grown<'a>> {
        let TensorSlot::Table(table, _) = of.slot else { return None };
        // A wide part has a table of each column once more, in their order; other tables behind them are of remainders,
        // which do not grow. Quotients have their column's place.
        let at = table.index();
        let at = if model.wide && at >= growth.len() { at - growth.len() } else { at };
        let column = growth.get(at).filter(|column| column.new > 0)?;
        let is_composed = model.rows.get(at).is_some_and(|rows| !model.composed(&[*rows]).is_empty());
        let before = column.rows_before();
        let before = if is_composed { before.div_ceil(model.qr_collisions) } else { before };
        let rows = self.rows_of(&of.name).filter(|rows| *rows as u64 == before && *rows < of.rows())?;
        let shape = std::iter::once(rows).chain(of.shape[1..].iter().copied()).collect();
        Some(Grown { filed: Parameter { shape, ..of.clone() }, column, is_composed })
    }

    /// The numbers of a tensor of this shape: 32-bit floats or, in another program's file, such as are 32-bit floats,
    /// too. A run's own checkpoint has 32 bits: with fewer it would not go on bit for bit.
    fn tensor(&self, of: &Parameter) -> Result<Floats<'_>> {
        let tensor = self.metadata.info(&of.name);
        let tensor = tensor.ok_or_else(|| self.fail(format!("tensor {} is missing", of.name)))?;
        // One matrix of several is that matrix, as facebookresearch/tbsm has its `A`.
        if tensor.shape.strip_prefix(&[1]) != Some(&of.shape[..]) && tensor.shape != of.shape {
            return Err(self.fail(format!(
                "tensor {} has shape {:?} but the model needs {:?}: they come from different data or another model",
                of.name, tensor.shape, of.shape
            )));
        }
        let (name, dtype, (from, to)) = (&of.name, tensor.dtype, tensor.data_offsets);
        let floats = Floats::of(dtype, &self.bytes[self.head.len()..][from..to]);
        let is_foreign = matches!(self.header, Ok(None));
        match floats.filter(|_| dtype == Dtype::F32 || is_foreign) {
            Some(_) if dtype != Dtype::F32 && of.counts_updates() => Err(self.fail(format!(
                "tensor {name} has type {dtype:?} and counts updates, of which 16 bits hold few exactly: write the count of the \
                 optimizer's state as F32"
            ))),
            Some(floats) => Ok(floats),
            None => Err(self.fail(format!("tensor {name} has type {dtype:?}; convert it to F32"))),
        }
    }

    /// Gives `each` the rows of a tensor, piece by piece, and checks them.
    fn pieces(&self, of: &Parameter, floats: Floats<'_>, each: TakeRows<'_>) -> Result<()> {
        let columns = of.columns();
        let mut check = self.hashes.as_ref().map(|hashes| hashes.check(&of.name, floats.bytes()));
        for rows in of.ranges(PIECE) {
            check.iter_mut().for_each(|check| check.advance(rows.end * columns * floats.width()));
            let values = floats.values(rows.start * columns..rows.end * columns);
            each(rows, &values)?;
            self.bytes.check()?;
        }
        if check.is_some_and(|check| !check.found_sound()) {
            return Err(self.damaged(of));
        }
        Ok(())
    }

    /// Checks a tensor that counts updates; all of layers count the same, and so do all of rows.
    fn check_updates(&self, parameter: &Parameter, floats: Floats<'_>, before: &mut Option<f32>) -> Result<()> {
        let count = floats.values(0..1)[0];
        let name = &parameter.name;
        if !(count >= 0.0 && count.fract() == 0.0) {
            return Err(self.fail(format!("tensor {name} is {count}: it counts updates")));
        }
        if *before.get_or_insert(count) != count {
            let reason = format!(
                "tensor {name} counts {count} updates and another one {}: layers are updated together, and so are tables; \
                 give them one number",
                before.unwrap_or(count)
            );
            return Err(self.fail(reason));
        }
        Ok(())
    }

    /// What the weights of its model's tables are called: as many as it has.
    pub(in crate::train) fn table_names(&self, model: &ModelConfig) -> Vec<String> {
        let (project, mut columns) = (Project::of(model), 0);
        while self.rows_of(&project.column(columns, model)).is_some() {
            columns += 1;
        }
        project.tables(model, model.tables(columns))
    }

    /// The tables of its model, to be looked up where they are; `None` in another program's file.
    ///
    /// # Errors
    /// As [`Checkpoint::header`].
    pub fn stored_tables(&self) -> Result<Option<StoredTables>> {
        let Some((_, config)) = self.header()? else { return Ok(None) };
        let mut names = self.table_names(&config.model);
        names.truncate(config.model.deep_tables(names.len()));
        let place = |name: &String| {
            let tensor = self.metadata.info(name).filter(|tensor| tensor.dtype == Dtype::F32)?;
            let start = self.head.len() + tensor.data_offsets.0;
            let &[rows, dim] = &tensor.shape[..] else { return None };
            Some((start, [rows, dim]))
        };
        Ok(Some(StoredTables::new(Arc::clone(&self.bytes), names.iter().map_while(place).collect())))
    }

    /// Whether all that was read of it so far was the file's.
    ///
    /// # Errors
    /// When somebody has cut it short.
    pub fn check_read(&self) -> Result<()> {
        self.bytes.check()
    }

    /// Checks the hashes of tables that ranks look up where they are, one byte behind the other and by one thread, so
    /// that those who look up have the others; ends early when it is told to.
    ///
    /// # Errors
    /// When a table is damaged.
    pub fn check_stored(&self, tables: &[Parameter], stop: &AtomicBool) -> Result<()> {
        let Some(hashes) = &self.hashes else { return Ok(()) };
        for of in tables {
            match hashes.check(&of.name, self.tensor(of)?.bytes()).found_sound_alone(stop) {
                None if interrupt::requested() => return Err(Error::Interrupted),
                None => return Ok(()),
                Some(true) => self.bytes.check()?,
                Some(false) => return Err(self.damaged(of)),
            }
        }
        Ok(())
    }

    fn damaged(&self, of: &Parameter) -> Error {
        self.fail(format!("tensor {} is damaged (its hash differs): {REMEDY}", of.name))
    }
}
