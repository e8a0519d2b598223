//! A kernel that forbids to bind memory, as containers' default filters do: first touch, one warning, and on.
//!
//! The filter is seccomp's (seccomp(2)) and holds for the thread that installs it and its children only.

use std::ffi::{c_int, c_long, c_ulong};
use std::thread;

use octorec::base::{NodeId, PuId};
use octorec::ffi::linux::pin_current_thread;
use octorec::memory::{Arena, Binding, Plan};

const SET_NO_NEW_PRIVS: c_int = 38;
const SET_SECCOMP: c_int = 22;
const MODE_FILTER: c_ulong = 2;
const ALLOW: u32 = 0x7fff_0000;
/// Fail with EPERM.
const REFUSE: u32 = 0x0005_0001;

/// One instruction of the classic Berkeley packet filter: `struct sock_filter`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

/// `struct sock_fprog`.
#[repr(C)]
struct Program {
    len: u16,
    instructions: *const Instruction,
}

unsafe extern "C" {
    fn prctl(option: c_int, argument: c_ulong, ...) -> c_int;
}

/// From now on these system calls fail with EPERM on this thread.
fn forbid(calls: &[c_long]) {
    let instruction = |code, if_true, value| Instruction { code, if_true, if_false: 0, value };
    // Load the call's number; for each forbidden one jump behind the rest and `ALLOW`.
    let mut program = vec![instruction(0x20, 0, 0)];
    for (number, call) in calls.iter().enumerate() {
        program.push(instruction(0x15, (calls.len() - number) as u8, *call as u32));
    }
    program.extend([instruction(0x06, 0, ALLOW), instruction(0x06, 0, REFUSE)]);
    let filter = Program { len: program.len() as u16, instructions: program.as_ptr() };
    let zero: c_ulong = 0;
    // SAFETY: this option takes the number 1 and three zeros, and only gives up rights of this thread.
    let answer = unsafe { prctl(SET_NO_NEW_PRIVS, 1, zero, zero, zero) };
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: `filter` and the instructions that it points to live until the call returns; the kernel checks and
    // copies them.
    let answer = unsafe { prctl(SET_SECCOMP, MODE_FILTER, &raw const filter, zero, zero) };
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
}

/// On x86-64.
const MBIND: c_long = 237;
const SET_MEMPOLICY: c_long = 238;
const GET_MEMPOLICY: c_long = 239;
const MOVE_PAGES: c_long = 279;

/// Builds an arena for node 5 on the processing unit, under the filter.
fn arena(pu: u32, calls: &'static [c_long]) -> Arena {
    let build = move || {
        pin_current_thread(&[PuId(pu)]).expect("the processing unit exists");
        forbid(calls);
        let plan = Plan::of(|supply| supply.buffer::<f32>("rows", 1 << 19)).expect("a small plan");
        let touch = |bytes: &mut [u8]| bytes.iter_mut().step_by(4096).for_each(|byte| *byte = 0);
        Arena::build(plan, &[NodeId(5)], touch).expect("first touch is no error")
    };
    let arena = thread::spawn(build).join().expect("the arena is built");
    assert!(matches!(arena.binding(), Binding::FirstTouch(_)), "{arena:?}");
    let first = &arena.warnings()[0];
    assert!(first.contains("first touch only") && first.contains("not permitted"), "{first}");
    arena
}

pub fn first_touch() -> String {
    let calls: [&'static [c_long]; 3] =
        [&[MBIND], &[MBIND, SET_MEMPOLICY, GET_MEMPOLICY], &[MBIND, SET_MEMPOLICY, GET_MEMPOLICY, MOVE_PAGES]];
    for calls in calls {
        let near = arena(5, calls);
        assert_eq!(near.warnings().len(), 1, "{:?}", near.warnings());
        assert_eq!(near.homes().is_some(), !calls.contains(&MOVE_PAGES));
        assert!(near.ask(&[NodeId(5)]).expect("nothing is forbidden here").all_at_home());
    }
    let far = arena(1, calls[1]);
    let expected = "0 of 512 pages at home; 512 elsewhere, the first at offset 0x0 (512 on node 1)";
    assert_eq!(far.warnings().len(), 2);
    assert!(far.warnings()[1].ends_with(expected), "{:?}", far.warnings());
    far.warnings().join("; ")
}
