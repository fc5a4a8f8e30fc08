// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rust's view of every policy struct is the C compiler's.
use plimsoll_policy_sys::*;

#[test]
fn every_struct_has_the_size_and_offsets_that_c_gives_it() {
    let mut index = 0;
    let mut structs = 0;
    macro_rules! check {
        ($name:ident, $type:ident, $($field:ident),*) => {
            assert_eq!(layout(index), std::mem::size_of::<$type>() as u64, "size of {}", stringify!($name));
            index += 1;
            $(
                assert_eq!(
                    layout(index),
                    std::mem::offset_of!($type, $field) as u64,
                    "offset of {}.{}", stringify!($name), stringify!($field)
                );
                index += 1;
            )*
            structs += 1;
        };
    }
    for_each_struct!(check);
    assert_eq!(layout(index), u64::MAX, "C knows more fields than Rust does");
    assert!(structs > 10);
}

/// The first and the last cache line of a field.
fn lines<T>(offset: usize) -> (usize, usize) {
    (offset / LINE, (offset + size_of::<T>() - 1) / LINE)
}

const LINE: usize = 64;

#[test]
fn what_cpus_write_often_shares_no_cache_line_with_what_others_read() {
    // System 4's own line, and what a CPU keeps of a group: whole lines, wherever they are put.
    let whole = [
        (size_of::<GroupLoad>(), align_of::<GroupLoad>()),
        (size_of::<Queue>(), align_of::<Queue>()),
        (size_of::<Balance>(), align_of::<Balance>()),
    ];
    assert!(
        whole
            .iter()
            .all(|(size, align)| size % LINE == 0 && *align == LINE),
        "{whole:?}"
    );
    macro_rules! read {
        ($type:ident: $($field:ident),*) => { [$(std::mem::offset_of!($type, $field) / LINE),*] };
    }
    // What every charge reads of a pool, and what changes as CPUs ask it and its timers fire.
    let asked = read!(Pool: runtime_ns, next_ns, head, tail, timer_active, distributing, throttled_ns, owed);
    let charged = read!(Pool: quota_ns, period_ns, balances, ring, ring_mask, nr_cpus);
    assert!(
        charged.iter().all(|line| !asked.contains(line)),
        "{asked:?} {charged:?}"
    );
    // What every walk over the levels reads of a group, beside both and the load.
    let walked = read!(Group: weight, parent, charged, side, queues, idle, is_side, under_idle);
    let written = [
        lines::<Pool>(std::mem::offset_of!(Group, pool)),
        lines::<GroupLoad>(std::mem::offset_of!(Group, load)),
        lines::<GroupLoad>(std::mem::offset_of!(Group, crowd)),
    ];
    for (first, last) in written {
        assert!(
            walked.iter().all(|line| !(first..=last).contains(line)),
            "{walked:?} {written:?}"
        );
    }
}

/// All of policy/, one after the other.
fn headers() -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../policy");
    let folders = [folder.to_string(), format!("{folder}/baseline")];
    folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap())
        .map(|header| header.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect()
}

/// A number of a header, such as `(5 * PL_MS)`.
fn defined(name: &str) -> u64 {
    let prefix = format!("#define {name} ");
    let headers = headers();
    let value = headers
        .lines()
        .find_map(|line| line.strip_prefix(&prefix))
        .unwrap_or_else(|| panic!("no header defines {name}"));
    let value = value.split("/*").next().unwrap().trim();
    let value = value.trim_start_matches('(').trim_end_matches(')');
    value
        .split(" * ")
        .map(|factor| match factor {
            "PL_US" | "PL_MS" => defined(factor),
            number => number.trim_end_matches("ULL").parse().unwrap(),
        })
        .product()
}

#[test]
fn every_constant_is_the_headers() {
    let constants = [
        ("PL_BW_SLACK_DELAY_NS", BW_SLACK_DELAY_NS),
        ("PL_BALANCE_ONE", BALANCE_ONE.into()),
        ("PL_LOAD_SHIFT", LOAD_SHIFT.into()),
        ("PL_EFFECTIVE_SHIFT", EFFECTIVE_SHIFT.into()),
        ("PL_GROUP_DEPTH_MAX", GROUP_DEPTH_MAX.into()),
        ("PL_BW_SLICE_NS", BW_SLICE_NS),
        ("PL_LOAD_PUBLISH_NS", LOAD_PUBLISH_NS),
        ("PL_FAIR_SLICE_NS", FAIR_SLICE_NS),
        ("PL_CFS_WAKEUP_GRAN_NS", CFS_WAKEUP_GRAN_NS),
        ("PL_FAIR_WAIT_MAX_NS", FAIR_WAIT_MAX_NS),
        ("PL_BW_QUOTA_MIN_NS", BW_QUOTA_MIN_NS),
        ("PL_DOMAIN_REST", DOMAIN_REST.into()),
        ("PL_FAIR_PULL_NS", FAIR_PULL_NS),
        ("PL_FAIR_LAG_MAX_NS", FAIR_LAG_MAX_NS),
        ("PL_REFRESH_NS", REFRESH_NS),
        ("PL_STEAL_OVERLOADED", STEAL_OVERLOADED.into()),
        ("PL_STEAL_NODE_LIMIT", STEAL_NODE_LIMIT.into()),
        ("PL_STEAL_COST_NS", STEAL_COST_NS),
        ("PL_HEADROOM_WINDOW_NS", HEADROOM_WINDOW_NS),
        ("PL_HEADROOM_TOLERANCE_NS", HEADROOM_TOLERANCE_NS),
        ("PL_HEADROOM_STEPS", HEADROOM_STEPS.into()),
        ("PL_HEADROOM_SLICE_NS", HEADROOM_SLICE_NS),
    ];
    for (name, value) in constants {
        assert_eq!(defined(name), value, "{name}");
    }
    let enumerated = [
        ("PL_BW_OK", BW_OK),
        ("PL_BW_ERR_ROOT", BW_ERR_ROOT),
        ("PL_BW_ERR_QUOTA", BW_ERR_QUOTA),
        ("PL_BW_ERR_PERIOD", BW_ERR_PERIOD),
        ("PL_BW_ERR_BURST", BW_ERR_BURST),
        ("PL_BW_ERR_ONSET", BW_ERR_ONSET),
        ("PL_BW_THROTTLED", BW_THROTTLED),
        ("PL_BW_ARM_PERIOD", BW_ARM_PERIOD),
        ("PL_BW_ARM_SLACK", BW_ARM_SLACK),
    ];
    for (name, value) in enumerated {
        let line = format!("\t{name} = {value},");
        assert!(headers().lines().any(|l| l.starts_with(&line)), "{name}");
    }
}
