//! Weights that a run is to begin with: what is wrong with the file of another program, and the lines of Python that
//! mend it; whether data have its columns; and whether a run began with them.

use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors};

use crate::base::config::{Config, DataConfig, ModelConfig, OptimizerName, SourceKind};
use crate::base::console::note;
use crate::base::error::shell;
use crate::base::units::Count;
use crate::base::{Error, Result};
use crate::cli::trained::{VerifyArgs, is_bare_parquet};
use crate::data::formats::SCHEMA;
use crate::data::{Growth, Source};
use crate::memory::FileMap;
use crate::model::{Project, is_of_model};
use crate::train::{Checkpoint, Instead, Start, checkpoint_in};

/// What files of PyTorch and NumPy begin with: archives, arrays, pickles.
const FOREIGN: [&[u8]; 3] = [b"PK\x03\x04", b"\x93NUMPY", b"\x80"];

/// Refuses a file of PyTorch's or NumPy's own, and one whose names are those of a model that another module holds.
///
/// # Errors
/// [`Error::Config`] with what to do; whoever reads the file tells what else is wrong with it.
pub(super) fn check(path: &Path) -> Result<()> {
    let Ok(bytes) = FileMap::open(path) else { return Ok(()) };
    let Some((length, _)) = bytes.split_first_chunk::<8>() else { return Ok(()) };
    // The length of a head of safetensors, of which the upper bytes are 0.
    let length = u64::from_le_bytes(*length);
    let shown = path.display();
    let reason = if length > u64::from(u32::MAX) && FOREIGN.iter().any(|magic| bytes.starts_with(magic)) {
        format!(
            "{shown} is a file of PyTorch or NumPy, and weights are read from safetensors. In Python, where state_dict is \
             torch.load({shown:?}, map_location=\"cpu\") or the model's state_dict(): import safetensors.torch; \
             safetensors.torch.save_file(state_dict, \"model.safetensors\")"
        )
    } else if let Ok((_, metadata)) = SafeTensors::read_metadata(&bytes)
        && let Some((name, bare)) = wrapped(&metadata.offset_keys())
    {
        format!(
            "{shown} has tensor {name}, a name that a module gives which holds the model or a part of it, as \
             DistributedDataParallel does. In Python: import safetensors.torch as st; st.save_file({{{bare}: tensor for name, \
             tensor in st.load_file({shown:?}).items()}}, \"model.safetensors\")"
        )
    } else {
        return Ok(());
    };
    Err(Error::config("--init", reason))
}

/// The first of a state dict's names that has more than the model's own, as what holds a module puts before the names
/// of its tensors, and the Python expression that takes this from `name`. Names of own layers are anybody's and do not
/// tell.
fn wrapped(names: &[String]) -> Option<(&str, String)> {
    let is_known = |name: &str| is_of_model(name) && Project::of_name(name) != Some(Project::Own);
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    if names.iter().any(|name| is_of_model(name)) {
        // Of a part of it: facebookresearch/dlrm distributes its layers so, and no tables.
        let name = names.into_iter().find(|name| is_known(name) && name.contains(".module."))?;
        return Some((name, "name.replace(\".module.\", \".\")".to_owned()));
    }
    let bare = |name: &str| name.match_indices('.').map(|(at, _)| at + 1).find(|at| is_known(&name[*at..]));
    let (name, at) = names.into_iter().find_map(|name| Some((name, bare(name)?)))?;
    Some((name, format!("name.removeprefix({:?})", &name[..at])))
}

/// Refuses to continue the run in a folder by a command that begins with other weights than it did. A path that is the
/// same will do: what it names may have been removed since, or trained on.
///
/// # Errors
/// [`Error::Config`] with both paths, and when the run's checkpoint cannot be read.
pub(super) fn refuse_another(init: Option<&Path>, run: &Path, verify: VerifyArgs) -> Result<()> {
    let checkpoint = checkpoint_in(run);
    let began = Checkpoint::open_as(&checkpoint, !verify.no_verify)?.start()?;
    let sealed = |path: &Path| Start::of(path, &Checkpoint::open_as(&checkpoint_in(path), false).ok()?).seal;
    let is_same = match (init, &began) {
        (None, None) => true,
        (Some(path), Some(began)) => {
            path.display().to_string() == began.path || began.seal.is_some() && sealed(path) == began.seal
        }
        _ => false,
    };
    if is_same {
        return Ok(());
    }
    let words =
        |path: Option<String>| path.map_or_else(|| "without --init".to_owned(), |path| format!("with --init {path}"));
    let [asked, began] = [init.map(|path| path.display().to_string()), began.map(|began| began.path)].map(words);
    let shown = run.display();
    let reason = format!(
        "{shown} holds a run that began {began}, and one {asked} is asked for: go on with its own by --resume {}, or begin \
         another run with another --out or --force in the place of --auto-resume",
        shell(run)
    );
    Err(Error::config("--init with --auto-resume", reason))
}

/// What is left for a key to change that says with what sums of optimizers begin, where --init has them, for people;
/// nothing where it has none. `found`: whether it has what optimizers keep of layers, and of rows.
pub(super) fn taken_sums(config: &Config, found: [Option<bool>; 2], growth: &[Growth]) -> Option<String> {
    let Config { model, train, .. } = config;
    let sums = |optimizer: OptimizerName| {
        matches!(optimizer, OptimizerName::Adagrad | OptimizerName::RowwiseAdagrad | OptimizerName::Ftrl)
    };
    let wide = model.wide && sums(train.optimizer_wide);
    let [layers, rows] = [train.optimizer, train.optimizer_rows].map(|optimizer| wide || sums(optimizer));
    let taken = [layers && found[0] == Some(true), rows && found[1] == Some(true)];
    let grows = taken[1] && growth.iter().any(|column| column.new > 0);
    let (what, of) = match taken {
        [false, false] => return None,
        [true, false] if rows => ("changes nothing of layers", " of layers"),
        [false, true] if layers && grows => ("begins of rows those of new values alone", " of rows"),
        [false, true] if layers => ("changes nothing of rows", " of rows"),
        _ if grows => ("begins those of new values alone", ""),
        _ => ("changes nothing", ""),
    };
    Some(format!("{what}: the optimizer's sums{of} are"))
}

/// The error of a run that began with these weights: where it diverged and they are no numbers, that is the cause.
pub(super) fn explained(error: Error, init: Option<&Path>) -> Error {
    match error {
        Error::Diverged { step, loss, by_weight, rate, cause: None, saved } => {
            let cause = init.and_then(broken_tensor);
            Error::Diverged { step, loss, by_weight, rate, cause, saved }
        }
        other => other,
    }
}

/// The first tensor of a file with a value that is no finite number, in words.
fn broken_tensor(path: &Path) -> Option<String> {
    let bytes = FileMap::open(path).ok()?;
    let tensors = SafeTensors::deserialize(&bytes).ok()?;
    // Of 16 bits, all bits of an exponent that are set say so.
    let is_endless = |data: &[u8], exponent: u16| {
        data.as_chunks().0.iter().any(|value| u16::from_le_bytes(*value) & exponent == exponent)
    };
    let is_broken = |dtype: Dtype, data: &[u8]| match dtype {
        Dtype::F32 => data.as_chunks().0.iter().any(|value| !f32::from_le_bytes(*value).is_finite()),
        Dtype::BF16 => is_endless(data, 0x7f80),
        Dtype::F16 => is_endless(data, 0x7c00),
        _ => false,
    };
    let mut tensors = tensors.iter();
    let (name, _) = tensors.find(|(_, tensor)| is_broken(tensor.dtype(), tensor.data()))?;
    Some(format!(
        "tensor {name} of --init {} holds values that are no finite numbers: begin with other weights",
        path.display()
    ))
}

/// What can be done about data whose columns are others.
pub(super) const FROM_THE_START: &str = "or train from the start, without --init";

/// What can be done about data whose rows are others.
pub(super) const INSTEAD: Instead =
    Instead { otherwise: FROM_THE_START, begins: true, may_have_grown: true, may_skip: true };

/// Refuses Parquet that nobody describes for a model of text, whose rows are those of values, by a vocabulary or by a
/// hash: identifiers would be taken for numbers of these rows. `flag` is that by which training begins or goes on, and
/// `otherwise` what else can be done.
///
/// # Errors
/// [`Error::Config`] with the path.
pub(super) fn refuse_identifiers(
    weights: &Checkpoint<'_>,
    data: &DataConfig,
    (flag, otherwise): (&str, &str),
) -> Result<()> {
    // Of a damaged header the weights are as good.
    let Some((_, trained)) = weights.header().ok().flatten() else { return Ok(()) };
    let is_of_text = trained.data.source == SourceKind::Tsv || !trained.data.schema.is_empty();
    if !is_of_text || !data.is_stored() || !data.schema.is_empty() {
        return Ok(());
    }
    let mut paths = [&data.path, &data.test_path].into_iter().filter(|path| !path.is_empty());
    paths.find(|path| is_bare_parquet(Path::new(path))).map_or(Ok(()), |path| {
        let remedy = match trained.data.schema.is_empty() {
            true => "name text of the kind that it was trained on".to_owned(),
            false => format!("describe the values by the schema that it was trained with (--schema {})", trained.data.schema),
        };
        let reason = format!(
            "{path} is Parquet, whose whole numbers are numbers of rows, but this model was trained on values of text: {remedy}, \
             {otherwise}; if these are the rows of its values, say so in a {SCHEMA} beside the files"
        );
        Err(Error::config(flag, reason))
    })
}

/// Checks that data have the columns of the model whose weights the run begins with, and that these are looked up as
/// they were, however many values have come, and have as many rows where none has.
pub(super) fn check_columns(weights: &Checkpoint<'_>, config: &Config, source: &dyn Source) -> Result<()> {
    let about = source.about();
    let dense: Vec<&str> = about.dense_columns.iter().map(|(name, _)| &**name).collect();
    let categorical: Vec<&str> = config.model.columns.iter().map(|name| &**name).collect();
    weights.check_names(&dense, &categorical, FROM_THE_START)?;
    weights.check_kinds(config, source, "--init")?;
    weights.check_columns(source, true)?;
    // Of a damaged header the weights are as good.
    let Some((_, trained)) = weights.header().ok().flatten() else { return Ok(()) };
    let (model, had) = (&config.model, &trained.model.rows);
    let (now, before) = (model.own_composed(), model.composed(had));
    let grown = || about.growth.iter().enumerate().filter(|(at, column)| column.new > 0 && *at < had.len());
    for (at, Growth { column, .. }) in grown() {
        let rows = Count(model.rows[at]);
        if now.contains(&at) && !before.contains(&at) {
            // Not by a value at which columns that were looked up so would no longer be.
            let remedy = match before.iter().all(|other| model.rows[*other] > model.rows[at]) {
                true => format!("raise it to {}", model.rows[at]),
                false => "train from the start, without --init".to_owned(),
            };
            let reason = format!(
                "column {column} has {rows} rows now, and would be looked up by quotients and remainders, but the model that the \
                 run begins with has a row for each of its values: {remedy}"
            );
            return Err(Error::config("model.qr_threshold", reason));
        }
    }
    if model.md_temperature > 0.0 && grown().next().is_some() {
        // Those of a wide part have one column, whatever their rows.
        let deep = ModelConfig { wide: false, ..model.clone() };
        // Of a column that has not grown, too: widths follow from the rows of the smallest one.
        let mut widths = deep.dims(&model.rows).into_iter().zip(deep.dims(had)).zip(&model.columns);
        if let Some(((now, before), column)) = widths.find(|((now, before), _)| now != before) {
            let reason = format!(
                "rows of column {column} would have {now} elements, by how many rows columns have now, and have {before} in the \
                 model that the run begins with: train from the start, without --init"
            );
            return Err(Error::config("model.md_temperature", reason));
        }
    }
    // Numbers of blocks are taken modulo the limit, and so is that of unseen values, which would get another's row.
    let (cap, of_blocks) = (config.data.rows_cap, about.vocabulary.is_none());
    let limited =
        |column: &Growth, cap: u64| of_blocks && column.unseen_row && cap > 0 && column.kept + column.new >= cap;
    if let Some((at, column)) = grown().find(|found| limited(found.1, cap)) {
        let needs = column.kept + column.new + 1;
        let remedy = match had[at] == column.rows_before() {
            true => format!("raise it to {needs}"),
            false => "train from the start, without --init".to_owned(),
        };
        let reason = format!(
            "column {} of these blocks has {} rows, of which the last is that of unseen values: under this limit it would get \
             another one: {remedy}",
            column.column,
            Count(needs)
        );
        return Err(Error::config("data.rows_cap", reason));
    }
    let growth = |at: usize| about.growth.get(at).filter(|column| column.new > 0);
    // Under another limit than the model's, tables have other rows than growth explains.
    let is_grown =
        |at: usize| growth(at).is_some_and(|column| had[at] == column.rows_before() && had[at] <= model.rows[at]);
    // Of quotients and remainders, several numbers of rows make one.
    let is_kept = |at: usize| had.get(at) == model.rows.get(at) || is_grown(at) || now.contains(&at);
    if had.len() == model.rows.len()
        && let Some(at) = (0..had.len()).find(|at| !is_kept(*at))
    {
        let remedy = match trained.data.rows_cap {
            // Under its limit, too, unseen values would get another's row.
            cap if growth(at).is_some_and(|column| limited(column, cap)) => String::new(),
            cap if cap != config.data.rows_cap => format!("use --rows-cap {cap}, or "),
            _ => format!("describe it as it was (rows = {} of one that is hashed), or ", had[at]),
        };
        let reason = format!(
            "column {} has {} rows in these data, and {} in the model that the run begins with: {remedy}train from the start, \
             without --init",
            model.column_names(had.len())[at],
            Count(model.rows[at]),
            Count(had[at])
        );
        return Err(Error::config("--init", reason));
    }
    let is_crossed = |name: &String| model.wide && model.wide_crosses.iter().flatten().any(|crossed| crossed == name);
    let of_numbers = |(at, column): &(usize, &Growth)| now.contains(at) || is_crossed(&column.column);
    let moved = grown().filter(|found| of_blocks && found.1.unseen_row && of_numbers(found));
    let moved: Vec<&str> = moved.map(|(_, column)| &*column.column).collect();
    if let [first, others @ ..] = &moved[..] {
        let others =
            if others.is_empty() { String::new() } else { format!(" (and {} more)", Count(others.len() as u64)) };
        note!(
            "warning: column {first}{others}: quotients and remainders, and crosses of a wide part, are made of numbers of \
             rows, and that of unseen values is another one now: what the model has learned of them there goes to the first \
             new value, and theirs begins anew; a model that is trained from the start, without --init, learns both"
        );
    }
    Ok(())
}
