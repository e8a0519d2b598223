//! Vector operations are called by nothing but kernels that are compiled for their instruction set.
//!
//! The body of a closure that a function of the standard library calls (`array::from_fn`, `for_each`) is compiled
//! without the instruction set of the kernel around it, unless the compiler happens to inline both. Nothing is wrong
//! then but the speed: each vector operation is a call, and vectors travel through memory. The binary's machine code
//! tells.
//!
//! With debug assertions the standard library's own loads and stores are too long to be inlined anywhere; calls from
//! kernels, whose functions are all named `compiled`, are therefore left out.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::requirement::required;

/// What a disassembler shows between angle brackets at a line's end.
fn symbol(line: &str) -> Option<&str> {
    line.trim_end().trim_end_matches(':').strip_suffix('>')?.rsplit_once('<').map(|(_, symbol)| symbol)
}

/// Functions that call vector operations of the standard library and are no kernels.
fn strangers(lines: impl Iterator<Item = String>) -> BTreeSet<String> {
    let (mut function, mut found) = (String::new(), BTreeSet::new());
    for line in lines {
        if line.ends_with(">:") {
            symbol(&line).unwrap_or_default().clone_into(&mut function);
        } else if let Some(callee) = symbol(&line).filter(|_| line.contains("call") || line.contains("jmp")) {
            let is_operation = ["_mm256_", "_mm512_"].iter().any(|width| callee.contains(width));
            let itself = callee.split_once('+').map_or(callee, |(callee, _)| callee) == function;
            if is_operation && callee.contains("core_arch") && !itself && !function.contains("8compiled") {
                found.insert(function.clone());
            }
        }
    }
    found
}

#[test]
fn vector_operations_are_called_by_kernels_alone() {
    let binary = env!("CARGO_BIN_EXE_octorec");
    let listing = Command::new("objdump").args(["-d", "--no-show-raw-insn", binary]).stdout(Stdio::piped()).spawn();
    let Some(mut listing) = required("objdump", listing) else { return };
    let lines = BufReader::new(listing.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut kernels = 0;
    let found =
        strangers(lines.inspect(|line| kernels += usize::from(line.ends_with(">:") && line.contains("8compiled"))));
    assert!(listing.wait().unwrap().success() && kernels > 10, "{binary}: {kernels} kernels");
    assert!(found.is_empty(), "closures in kernels that lost their instruction set: {found:#?}");
}

#[test]
fn a_stranger_is_known_by_its_calls() {
    let listing = "\
0000000000001000 <_RINvNvMNtNtCs1_7octorec4simd6avx512NtB5_6Avx5123run8compiledE>:
    1000:	call   2000 <_RNvNtNtNtCs2_4core9core_arch3x867avx512f15__mm512_loadu_ps>
0000000000001100 <_RNCINvXs2_NtNtCs1_7octorec5layer3dot8BackwardE>:
    1100:	jmp    2000 <_RNvNtNtNtCs2_4core9core_arch3x867avx512f15__mm512_loadu_ps>
    1105:	call   3000 <_RNvNtCs1_7octorec4math3exp>";
    let found = strangers(listing.lines().map(str::to_owned));
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["_RNCINvXs2_NtNtCs1_7octorec5layer3dot8BackwardE"]);
}
