//! Pickles written by hand, as `pickletools.dis` shows them; what NumPy writes is read in `tests/data/fae.rs`.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::value::Number;
use super::{Origin, Part, Shared, Unpickler, Value};
use crate::base::Result;

fn read(pickle: &[u8]) -> Result<Vec<Part>> {
    let origin = Origin::new(Path::new("a.npz"), "arr_0");
    let shared = Arc::new(Shared::of(pickle, origin.clone())?);
    let mut unpickler = Unpickler::new(pickle, origin, shared);
    let mut parts = Vec::new();
    while !matches!(parts.last(), Some(Part::End(_))) {
        parts.push(unpickler.next()?);
    }
    Ok(parts)
}

fn value(pickle: &[u8]) -> Value {
    let mut parts = read(pickle).unwrap();
    assert_eq!(parts.len(), 1, "{parts:?}");
    match parts.pop() {
        Some(Part::End(value)) => value,
        part => panic!("{part:?}"),
    }
}

fn message(pickle: &[u8]) -> String {
    read(pickle).unwrap_err().to_string()
}

fn text(text: &str) -> Vec<u8> {
    [&[0x8c, text.len() as u8], text.as_bytes()].concat()
}

fn name(module: &str, name: &str) -> Vec<u8> {
    [text(module), text(name), vec![0x93]].concat()
}

/// A dtype of a code and a byte order.
fn dtype(code: &str, order: &str) -> Vec<u8> {
    let made = [name("numpy", "dtype"), text(code), b"\x89\x88\x87R".to_vec()].concat();
    [made, b"(K\x03".to_vec(), text(order), b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb".to_vec()].concat()
}

/// An array, its content given; behind it the opcode that ends a pickle.
fn array(shape: &[u8], dtype: &[u8], content: &[u8]) -> Vec<u8> {
    let made =
        [name("numpy.core.multiarray", "_reconstruct"), name("numpy", "ndarray"), b"K\x00\x85C\x01b\x87R".to_vec()];
    [
        made.concat(),
        b"(K\x01".to_vec(),
        shape.to_vec(),
        dtype.to_vec(),
        b"\x89".to_vec(),
        content.to_vec(),
        b"tb.".to_vec(),
    ]
    .concat()
}

#[test]
fn plain_values_are_what_they_are() {
    let int = |number| Value::Int(number);
    assert_eq!(value(b"\x80\x04N."), Value::None);
    assert_eq!(value(b"K\xff."), int(255));
    assert_eq!(value(b"M\x01\x02."), int(513));
    assert_eq!(value(b"J\xfe\xff\xff\xff."), int(-2));
    assert_eq!(value(b"\x8a\x00."), int(0));
    assert_eq!(value(b"\x8a\x01\x80."), int(-128));
    assert_eq!(value(b"\x8a\x05\x00\x00\x00\x00\x01."), int(1 << 32));
    assert_eq!(value(b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f."), int(i64::MAX));
    assert_eq!(value(b"G\x3f\xf8\x00\x00\x00\x00\x00\x00."), Value::Float(1.5));
    assert_eq!(value(b"X\x02\x00\x00\x00\xc3\xa9."), Value::Text("é".into()));
    assert_eq!(value(b"\x8e\x02\x00\x00\x00\x00\x00\x00\x00\x00\xff."), Value::Bytes(Arc::new([0, 255])));
    assert_eq!(
        value(b"(K\x01)K\x02\x85t."),
        Value::Tuple(Arc::new([int(1), Value::Tuple(Arc::new([])), Value::Tuple(Arc::new([int(2)])),]))
    );
    // Put under a number in protocol 2, and looked up again.
    assert_eq!(value(b"\x80\x02X\x01\x00\x00\x00aq\x05h\x05\x86."), {
        let a = Value::Text("a".into());
        Value::Tuple(Arc::new([a.clone(), a]))
    });
    let bytes = [b"c_codecs\nencode\n".to_vec(), text("\u{ff}a"), text("latin1"), b"\x86R.".to_vec()].concat();
    assert_eq!(value(&bytes), Value::Bytes(Arc::new([255, b'a'])));
}

#[test]
fn the_first_list_and_all_dictionaries_come_in_parts_and_other_lists_whole() {
    let int = |number| Value::Int(number);
    let parts = read(b"](K\x01](K\x02K\x03eK\x04ee.".as_slice());
    // An item too many: the list took all items since the first mark, and the second `e` finds none.
    assert!(parts.unwrap_err().to_string().contains("a value is missing"));
    let parts = read(b"](K\x01](K\x02K\x03eeK\x04a.").unwrap();
    let expected = [
        Part::Items(vec![int(1), Value::List(vec![int(2), int(3)])]),
        Part::Items(vec![int(4)]),
        Part::End(Value::Streamed(3)),
    ];
    assert_eq!(parts, expected);
    let parts = read(b"(}K\x01K\x02s}(K\x03K\x04K\x05K\x06ut.").unwrap();
    let expected = [
        Part::Pairs(0, vec![int(1), int(2)]),
        Part::Pairs(1, vec![int(3), int(4), int(5), int(6)]),
        Part::End(Value::Tuple(Arc::new([Value::Dict(0), Value::Dict(1)]))),
    ];
    assert_eq!(parts, expected);
}

#[test]
fn arrays_dtypes_and_scalars_are_made_of_what_numpy_says() {
    let numbers = |pickle: &[u8]| match value(pickle) {
        Value::Array(array) => (array.shape().to_vec(), (0..array.len()).map(|at| array.number(at).unwrap()).collect()),
        other => panic!("{other:?}"),
    };
    let ints = |ints: &[i64]| -> Vec<Number> { ints.iter().map(|int| Number::Int(*int)).collect() };
    let of = |code: &str, content: &[u8]| numbers(&array(b"K\x02\x85", &dtype(code, "<"), content));
    assert_eq!(of("i4", b"C\x08\x01\x00\x00\x00\xff\xff\xff\xff"), (vec![2], ints(&[1, -1])));
    assert_eq!(of("u1", b"C\x02\x01\xff").1, ints(&[1, 255]));
    assert_eq!(of("i2", b"C\x04\x01\x00\xff\xff").1, ints(&[1, -1]));
    assert_eq!(of("b1", b"C\x02\x01\x00").1, ints(&[1, 0]));
    assert_eq!(of("f2", b"C\x04\x00\x3c\x00\xc0").1, [1.0, -2.0].map(Number::Float));
    assert_eq!(of("f4", b"C\x08\x00\x00\xc0\x3f\x00\x00\x00\x00").1, [1.5, 0.0].map(Number::Float));
    let words = [&b"C\x10"[..], &u64::MAX.to_le_bytes(), &7u64.to_le_bytes()].concat();
    assert_eq!(of("u8", &words).1, [Number::Float(u64::MAX as f64), Number::Int(7)]);
    assert_eq!(of("i8", &words).1, ints(&[-1, 7]));
    let scalar = [name("numpy._core.multiarray", "scalar"), dtype("f4", "<"), b"C\x04\x00\x00\xc0\x3f\x86R.".to_vec()];
    assert_eq!(value(&scalar.concat()), Value::Float(1.5));
    // An array of objects, whose list is the first.
    let parts = read(&array(b"K\x02\x85", &dtype("O8", "|"), b"](K\x01Ne")).unwrap();
    let [Part::Items(items), Part::End(Value::Array(array))] = &parts[..] else { panic!("{parts:?}") };
    assert_eq!((items.len(), array.shape(), array.streamed()), (2, &[2][..], true));
}

#[test]
fn nothing_is_run_and_whatever_is_no_data_is_named_with_its_place() {
    let says = |pickle: &[u8], words: &[&str]| {
        let message = message(pickle);
        let place = message.starts_with("a.npz: array arr_0: byte ");
        assert!(place && words.iter().all(|word| message.contains(word)), "{message}");
    };
    says(
        b"cos\nsystem\nX\x02\x00\x00\x00ls\x85R.",
        &["byte 11 of", "names os.system", "nothing else in a pickle is run"],
    );
    let shell = [name("builtins", "eval"), b"X\x01\x00\x00\x001\x85R.".to_vec()].concat();
    says(&shell, &["names builtins.eval"]);
    says(b"i", &["opcode 0x69 makes no list", "is this the right file?"]);
    says(b"\x80\x05.", &["is of protocol 5", "numpy.savez_compressed"]);
    says(b"K", &["byte 1 of", "it ends in the middle", "copy or write the file again"]);
    says(b"X\xff\xff\xff\x7fab", &["it ends in the middle"]);
    says(b"X\xff\xff\xff\x7fab.", &["it ends in the middle"]);
    says(b"K\x01.x", &["bytes follow its end"]);
    says(b".", &["a value is missing"]);
    says(b"(.", &["a value is missing"]);
    says(b"t.", &["a value is missing"]);
    says(b"K\x01(\x85.", &["a value is missing"]);
    says(b"h\x03.", &["value 3 is looked up before there is one"]);
    says(b"]\x94h\x00\x86.", &["a list stands in two places"]);
    says(b"K\x01K\x02a.", &["items for a whole number instead of a list"]);
    says(b"]K\x01K\x02s.", &["pairs for a list instead of a dictionary"]);
    says(b"}(K\x01u.", &["a value is missing"]);
    says(b"K\x01)R.", &["a call of a whole number with a tuple of 0"]);
    says(b"K\x01)b.", &["content for a whole number instead of an array or a dtype"]);
    says(b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x00.", &["a whole number of 9 bytes"]);
    says(b"X\x01\x00\x00\x00\xff.", &["a text that is no UTF-8"]);
    says(b"K\x01K\x02\x93.", &["a name that is no text"]);
    says(b"cnumpy", &["a name that is none"]);
    says(&[name("numpy", "dtype"), b"K\x01\x85R.".to_vec()].concat(), &["called in a way in which NumPy does not"]);
    says(&[name("numpy", "dtype"), text("V8"), b"\x85R.".to_vec()].concat(), &["dtype \"V8\"", "astype"]);
    let plain = dtype("i4", "<");
    says(&array(b"K\x02\x85", &dtype("i4", ">"), b"C\x08........"), &["the highest byte first", "astype"]);
    says(&array(b"K\x02\x85", &plain, b"C\x04...."), &["shape [2] is filled with 1 cells"]);
    says(&array(b"K\x02\x85", &plain, b"C\x07......."), &["is filled with bytes"]);
    says(&array(b"K\x02\x85", &plain, b"N"), &["is filled with None"]);
    says(&array(b"N\x85", &plain, b"C\x00"), &["shape is none of up to 8 sizes"]);
    says(&array(b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\x03\x86", &plain, b"C\x00"), &["more cells than can be"]);
    let turned = array(b"K\x01K\x01\x86", &plain, b"C\x04....");
    let at = turned.iter().rposition(|byte| *byte == 0x89).unwrap();
    let turned = [&turned[..at], &[0x88], &turned[at + 1..]].concat();
    says(&turned, &["stands column by column", "numpy.ascontiguousarray"]);
    let fields = plain.iter().position(|byte| *byte == b'N').unwrap();
    let named = [&plain[..fields + 1], b"K\x01", &plain[fields + 2..]].concat();
    says(&array(b"K\x02\x85", &named, b"C\x08........"), &["a dtype has fields", "int32"]);
}

#[test]
fn neither_depth_nor_number_of_values_is_free() {
    let deep = [vec![b')'], vec![0x85; 100_000], vec![b'.']].concat();
    assert!(message(&deep).contains("values nest deeper than 32: is this the right file?"));
    // A tuple of itself twice, over and over, is small as it is written: where it is looked up again, it counts as a
    // whole.
    let twice =
        [vec![b')', 0x94], (0..31u8).flat_map(|n| [b'h', n, b'h', n, 0x86, 0x94]).collect(), vec![b'.']].concat();
    assert!(message(&twice).contains("MiB of values are looked up again"), "{}", message(&twice));
    let many = [vec![b'N'; 4 << 20], vec![b'.']].concat();
    assert!(message(&many).contains("between two portions of a list's items"));
    // As many items as one likes, a thousand at a time.
    let items: Vec<u8> = [&b"("[..], &[b'N'; 1000], b"e"].concat();
    let parts = read(&[b"]".to_vec(), items.repeat(5000), b".".to_vec()].concat()).unwrap();
    assert_eq!(parts.last(), Some(&Part::End(Value::Streamed(5_000_000))));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
    }

    #[test]
    fn no_opcodes_make_it_panic(
        codes in prop::collection::vec(prop::sample::select(&b"(tN)]ae}su\x85\x86\x87\x94hqK\x01\x00Rb\x93X"[..]), 0..60),
    ) {
        let _ = read(&[&codes[..], b"."].concat());
    }

    #[test]
    fn no_change_of_an_array_makes_it_panic(at: prop::sample::Index, to: u8) {
        let mut bytes = array(b"K\x02\x85", &dtype("O8", "|"), b"](K\x01Ne");
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = read(&bytes);
    }
}
