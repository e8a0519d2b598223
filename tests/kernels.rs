//! Vector operations are inlined into the kernels that use them.
//!
//! The body of a closure that a function of the standard library calls (`array::from_fn`, `for_each`) is compiled without
//! the instruction set of the kernel around it, unless the compiler happens to inline both. Nothing is wrong then but the
//! speed: each vector operation is a call, and vectors travel through memory. Such an operation is left in the binary as
//! a function of its own, so the binary's symbols tell.

use std::process::Command;

/// The symbols of the binary that are vector operations of the standard library.
fn operations(symbols: &str) -> Vec<&str> {
    let width = |symbol: &&str| symbol.contains("_mm256_") || symbol.contains("_mm512_");
    symbols.lines().filter(|symbol| symbol.contains("core_arch")).filter(width).collect()
}

#[test]
fn no_vector_operation_is_called() {
    let binary = env!("CARGO_BIN_EXE_octorec");
    let symbols = match Command::new("nm").arg(binary).output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        other => return println!("skipped: nm does not list the binary's symbols: {other:?}"),
    };
    assert!(symbols.contains("octorec"), "{binary} has symbols");
    let called = operations(&symbols);
    assert!(called.is_empty(), "closures in kernels that lost their instruction set? {called:#?}");
}

#[test]
fn a_vector_operation_is_known_by_its_name() {
    let symbols = "0 t _RNvNtNtNtCsgEmfK2I1SDS_4core9core_arch3x867avx512f15__mm512_loadu_ps\n\
                   0 t _ZN4core9core_arch3x863avx15_mm256_loadu_ps17hE\n\
                   0 t _RNvNtCs_7octorec4math4exp";
    assert_eq!(operations(symbols).len(), 2);
}
