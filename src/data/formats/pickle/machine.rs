//! The stack machine of a pickle, which makes values and calls nothing.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use super::opcodes::{AGAIN, Opcode, Opcodes};
use super::value::{Global, Value};
use super::{Origin, Shared, numpy};
use crate::base::Result;
use crate::base::units::Bytes;

/// Bytes of values that may come between two parts, and that those that are looked up again may take.
pub(super) const ROOM: u64 = 256 << 20;

/// What a value takes beside its text or bytes.
const VALUE: u64 = 128;

/// How deep values nest: a sample's numbers stand three deep.
pub(super) const DEEPEST: u8 = 32;

/// What a pickle has made since the part before.
#[derive(Debug, PartialEq)]
pub(in crate::data::formats) enum Part {
    /// The next items of the first list.
    Items(Vec<Value>),
    /// The next pairs of a dictionary, which has this number, counted from 0: key, value, key, value …
    Pairs(u32, Vec<Value>),
    /// What all of it is. Nothing follows.
    End(Value),
}

/// A value on the stack.
#[derive(Debug, Clone)]
struct Entry {
    value: Value,
    /// How deep its values nest.
    depth: u8,
    /// What it takes, each value counted wherever it stands.
    bytes: u64,
}

impl Entry {
    const fn new(value: Value, payload: u64) -> Self {
        Self { value, depth: 0, bytes: payload.saturating_add(VALUE) }
    }

    /// A value that others make up.
    fn of(value: Value, items: &[Self]) -> Self {
        // `push` lets nothing pass that nests deeper than it counts.
        let depth = items.iter().map(|entry| entry.depth).max().unwrap_or(0) + 1;
        let bytes = items.iter().fold(VALUE, |bytes, entry| bytes.saturating_add(entry.bytes));
        Self { value, depth, bytes }
    }
}

/// Reads a pickle, part by part.
#[derive(Debug)]
pub(in crate::data::formats) struct Unpickler<R> {
    opcodes: Opcodes<R>,
    shared: Arc<Shared>,
    stack: Vec<Entry>,
    /// Bytes of its values.
    stacked: u64,
    /// Where the stack ended at each mark.
    marks: Vec<usize>,
    /// Values that are looked up again, and their bytes.
    kept: HashMap<u32, Entry>,
    kept_bytes: u64,
    /// Values that were numbered.
    numbered: u32,
    /// Dictionaries so far.
    dicts: u32,
    /// Whether the first list has come.
    streams: bool,
    /// Bytes of values since the last part, and of those that were on the stack then.
    held: u64,
}

impl<R: Read> Unpickler<R> {
    /// A reader of a pickle's first byte on, with what the pass of [`Shared::of`] told of it.
    pub(in crate::data::formats) fn new(stream: R, origin: Origin, shared: Arc<Shared>) -> Self {
        Self {
            opcodes: Opcodes::new(stream, origin),
            shared,
            stack: Vec::new(),
            stacked: 0,
            marks: Vec::new(),
            kept: HashMap::new(),
            kept_bytes: 0,
            numbered: 0,
            dicts: 0,
            streams: false,
            held: 0,
        }
    }

    /// How many bytes of the pickle were read.
    pub(in crate::data::formats) const fn at(&self) -> u64 {
        self.opcodes.at()
    }

    /// The next part; to be asked for until [`Part::End`] comes.
    ///
    /// # Errors
    /// When the pickle is damaged, makes anything but data, or holds more between two parts than there is room for; the
    /// message names the byte.
    pub(in crate::data::formats) fn next(&mut self) -> Result<Part> {
        loop {
            if let Some(part) = self.step()? {
                self.held = self.stacked.saturating_add(self.marks.len() as u64 * VALUE);
                return Ok(part);
            }
        }
    }

    /// Does what the next opcode says.
    fn step(&mut self) -> Result<Option<Part>> {
        match self.opcodes.next()? {
            Opcode::Framing => {}
            Opcode::Stop => {
                let Entry { value, .. } = self.pop()?;
                self.opcodes.end()?;
                return Ok(Some(Part::End(value)));
            }
            Opcode::Mark => {
                self.hold(0)?;
                self.marks.push(self.stack.len());
            }
            Opcode::None => self.push(Entry::new(Value::None, 0))?,
            Opcode::Bool(value) => self.push(Entry::new(Value::Bool(value), 0))?,
            Opcode::Int(value) => self.push(Entry::new(Value::Int(value), 0))?,
            Opcode::Float(value) => self.push(Entry::new(Value::Float(value), 0))?,
            Opcode::Text(length) => self.text(length)?,
            Opcode::Bytes(length) => {
                self.hold(length)?;
                let bytes = self.opcodes.payload(length, ROOM)?;
                self.push(Entry::new(Value::Bytes(bytes.into()), length))?;
            }
            Opcode::Tuple => {
                let items = self.since_mark()?;
                self.tuple(items)?;
            }
            Opcode::TupleOf(count) => {
                let from = self.stack.len().checked_sub(count).filter(|from| *from >= self.floor());
                let from = from.ok_or_else(|| self.missing())?;
                let items = self.pop_from(from);
                self.tuple(items)?;
            }
            Opcode::EmptyList => {
                let value = if self.streams { Value::List(Vec::new()) } else { Value::Streamed(0) };
                self.streams = true;
                self.push(Entry::of(value, &[]))?;
            }
            Opcode::EmptyDict => {
                self.push(Entry::of(Value::Dict(self.dicts), &[]))?;
                self.dicts = self.dicts.checked_add(1).ok_or_else(|| self.opcodes.fail("too many dictionaries"))?;
            }
            Opcode::Append => {
                let item = self.pop()?;
                return self.extend(vec![item]);
            }
            Opcode::Appends => {
                let items = self.since_mark()?;
                return self.extend(items);
            }
            Opcode::SetItem => {
                let value = self.pop()?;
                let key = self.pop()?;
                return self.set(vec![key, value]);
            }
            Opcode::SetItems => {
                let pairs = self.since_mark()?;
                return self.set(pairs);
            }
            Opcode::Global => {
                let (module, name) = (self.opcodes.line()?, self.opcodes.line()?);
                self.global(&module, &name)?;
            }
            Opcode::StackGlobal => {
                let (name, module) = (self.pop()?.value, self.pop()?.value);
                let (Value::Text(module), Value::Text(name)) = (module, name) else {
                    return Err(self.opcodes.fail(format!("a name that is no text: {AGAIN}")));
                };
                self.global(&module, &name)?;
            }
            Opcode::Reduce => self.call()?,
            Opcode::Build => self.build()?,
            Opcode::Get(number) => self.get(number)?,
            Opcode::Put(number) => self.keep(number)?,
            Opcode::Memoize => self.keep(self.numbered)?,
        }
        Ok(None)
    }

    /// The stack below which the values of an unfinished container lie.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn missing(&self) -> crate::base::Error {
        self.opcodes.fail(format!("a value is missing: {AGAIN}"))
    }

    fn pop(&mut self) -> Result<Entry> {
        if self.stack.len() <= self.floor() {
            return Err(self.missing());
        }
        let entry = self.stack.pop().ok_or_else(|| self.missing())?;
        self.stacked = self.stacked.saturating_sub(entry.bytes);
        Ok(entry)
    }

    fn since_mark(&mut self) -> Result<Vec<Entry>> {
        let mark = self.marks.pop().ok_or_else(|| self.missing())?;
        Ok(self.pop_from(mark))
    }

    /// The values from this place of the stack on.
    fn pop_from(&mut self, place: usize) -> Vec<Entry> {
        let entries = self.stack.split_off(place);
        self.stacked = entries.iter().fold(self.stacked, |bytes, entry| bytes.saturating_sub(entry.bytes));
        entries
    }

    /// Puts a value on the stack.
    fn put(&mut self, entry: Entry) {
        self.stacked = self.stacked.saturating_add(entry.bytes);
        self.stack.push(entry);
    }

    /// Counts a value with so many bytes of text.
    fn hold(&mut self, bytes: u64) -> Result<()> {
        self.held = self.held.saturating_add(bytes).saturating_add(VALUE);
        if self.held > ROOM {
            return Err(self.too_much("between two portions of a list's items or a dictionary's pairs"));
        }
        Ok(())
    }

    fn too_much(&self, place: &str) -> crate::base::Error {
        let reason = format!(
            "more than {} of values {place}: NumPy writes a thousand items at a time; write the file with \
             numpy.savez_compressed",
            Bytes(ROOM)
        );
        self.opcodes.fail(reason)
    }

    fn push(&mut self, entry: Entry) -> Result<()> {
        self.hold(0)?;
        if entry.depth > DEEPEST {
            return Err(self.opcodes.fail(format!("values nest deeper than {DEEPEST}: is this the right file?")));
        }
        self.put(entry);
        Ok(())
    }

    fn text(&mut self, length: u64) -> Result<()> {
        self.hold(length)?;
        let text = String::from_utf8(self.opcodes.payload(length, ROOM)?);
        let text = text.map_err(|_| self.opcodes.fail(format!("a text that is no UTF-8: {AGAIN}")))?;
        self.push(Entry::new(Value::Text(text.into()), length))
    }

    fn tuple(&mut self, items: Vec<Entry>) -> Result<()> {
        let empty = Entry::of(Value::None, &items);
        self.push(Entry { value: Value::Tuple(items.into_iter().map(|entry| entry.value).collect()), ..empty })
    }

    /// Appends to the list on top of the stack.
    fn extend(&mut self, items: Vec<Entry>) -> Result<Option<Part>> {
        let added = Entry::of(Value::None, &items);
        let mut list = self.pop()?;
        let values = items.into_iter().map(|entry| entry.value);
        let part = match &mut list.value {
            Value::Streamed(count) => {
                let values: Vec<Value> = values.collect();
                *count += values.len() as u64;
                Some(Part::Items(values))
            }
            Value::List(known) => {
                known.extend(values);
                list.depth = list.depth.max(added.depth);
                list.bytes = list.bytes.saturating_add(added.bytes);
                None
            }
            other => {
                let reason = format!("items for {} instead of a list: {AGAIN}", other.kind());
                return Err(self.opcodes.fail(reason));
            }
        };
        self.push(list)?;
        Ok(part)
    }

    /// Hands out pairs of the dictionary on top of the stack.
    fn set(&mut self, pairs: Vec<Entry>) -> Result<Option<Part>> {
        let dict = self.pop()?;
        let Value::Dict(number) = dict.value else {
            let reason = format!("pairs for {} instead of a dictionary: {AGAIN}", dict.value.kind());
            return Err(self.opcodes.fail(reason));
        };
        if !pairs.len().is_multiple_of(2) {
            return Err(self.missing());
        }
        self.push(dict)?;
        Ok(Some(Part::Pairs(number, pairs.into_iter().map(|entry| entry.value).collect())))
    }

    fn global(&mut self, module: &str, name: &str) -> Result<()> {
        let global = Global::named(module, name).ok_or_else(|| {
            let reason = format!(
                "names {module}.{name}, and only NumPy's arrays, dtypes and numbers are made: nothing else in a pickle is \
                 run. Is this the right file?"
            );
            self.opcodes.fail(reason)
        })?;
        self.push(Entry::new(Value::Global(global), 0))
    }

    /// Makes what a call of something named makes of a tuple.
    fn call(&mut self) -> Result<()> {
        let (values, global) = (self.pop()?, self.pop()?.value);
        let (Value::Global(global), Value::Tuple(items)) = (&global, &values.value) else {
            let reason = format!("a call of {} with {}: {AGAIN}", global.kind(), values.value.kind());
            return Err(self.opcodes.fail(reason));
        };
        let value = numpy::call(*global, items).map_err(|reason| self.opcodes.fail(reason))?;
        // What is made may be as large as what it is made of.
        self.hold(values.bytes)?;
        self.push(Entry::new(value, values.bytes))
    }

    /// Fills what a call has made.
    fn build(&mut self) -> Result<()> {
        let (state, unbuilt) = (self.pop()?, self.pop()?);
        let Value::Unbuilt(unbuilt) = unbuilt.value else {
            let reason = format!("content for {} instead of an array or a dtype: {AGAIN}", unbuilt.value.kind());
            return Err(self.opcodes.fail(reason));
        };
        let built = numpy::build(unbuilt, &state.value).map_err(|reason| self.opcodes.fail(reason))?;
        let entry = Entry { value: built, ..state };
        // Whoever looks it up again finds it filled.
        if let Some(number) = unbuilt.number {
            self.count_kept(entry.bytes)?;
            self.kept.insert(number, entry.clone());
        }
        self.push(entry)
    }

    /// Keeps the value on top of the stack under its number, if it is looked up again.
    fn keep(&mut self, number: u32) -> Result<()> {
        let next = self.numbered.checked_add(1);
        self.numbered = next.ok_or_else(|| self.opcodes.fail("more than 2^32 numbered values"))?;
        if !self.shared.has(number) {
            return Ok(());
        }
        let mut entry = self.pop()?;
        match &mut entry.value {
            Value::List(_) | Value::Streamed(_) | Value::Dict(_) => {
                let reason = format!("{} stands in two places: write each with numbers of its own", entry.value.kind());
                return Err(self.opcodes.fail(reason));
            }
            Value::Unbuilt(unbuilt) => unbuilt.number = Some(number),
            _ => {}
        }
        self.count_kept(entry.bytes)?;
        self.kept.insert(number, entry.clone());
        self.put(entry);
        Ok(())
    }

    /// Looks up the value of a number.
    fn get(&mut self, number: u32) -> Result<()> {
        let found = self.kept.get(&number).cloned();
        let entry = found
            .ok_or_else(|| self.opcodes.fail(format!("value {number} is looked up before there is one: {AGAIN}")))?;
        self.push(entry)
    }

    /// Counts the bytes of a value that is looked up again.
    fn count_kept(&mut self, bytes: u64) -> Result<()> {
        self.kept_bytes = self.kept_bytes.saturating_add(bytes);
        if self.kept_bytes > ROOM {
            return Err(self.too_much("are looked up again"));
        }
        Ok(())
    }
}
