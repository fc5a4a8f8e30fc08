// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An event as the row that it is in a table.
use crate::model::{Event, What};
use crate::schema::{schema, Col};

/// Columns of whole numbers of 32 bits, in the order of [`Cells::ints`].
pub(crate) const INTS: [Col; 6] = [
    Col::Cpu,
    Col::Tid,
    Col::NextTid,
    Col::WakerTid,
    Col::TargetCpu,
    Col::Group,
];
/// Of texts, in that of [`Cells::texts`].
pub(crate) const TEXTS: [Col; 4] = [Col::Kind, Col::PrevState, Col::Context, Col::Op];
/// Of whole numbers of 64 bits, in that of [`Cells::longs`]: those of a sample, then what later versions count.
pub(crate) const LONGS: [Col; 11] = [
    Col::UsageNs,
    Col::NrPeriods,
    Col::NrThrottled,
    Col::ThrottledNs,
    Col::NrBursts,
    Col::BurstNs,
    Col::Connection,
    Col::Bytes,
    Col::RunNs,
    Col::OwedNs,
    Col::BesideOwedNs,
];

/// The values of one row (`docs/src/reference/trace-format.md`); [`Cells::columns`] says which.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cells {
    pub ts_ns: i64,
    pub ints: [Option<i32>; INTS.len()],
    pub texts: [Option<&'static str>; TEXTS.len()],
    pub longs: [Option<i64>; LONGS.len()],
}

/// Where the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    Ts,
    Int(usize),
    Text(usize),
    Long(usize),
}

impl Cells {
    /// The columns by their names, in the order of a file.
    pub fn columns() -> Vec<(String, Kept)> {
        let schema = schema();
        let names = schema.get_fields().iter().map(|field| field.name().to_string());
        names
            .enumerate()
            .map(|(column, name)| (name, place(column)))
            .collect()
    }

    pub fn of(event: &Event) -> Cells {
        let int = |v: u32| Some(v as i32);
        let [mut tid, mut next, mut waker, mut target, mut group] = [None; 5];
        let [mut state, mut context, mut op] = [None; 3];
        let [mut connection, mut bytes, mut run_ns, mut owed_ns, mut beside_ns] = [None; 5];
        let mut stats = [None; 6];
        let kind = match &event.what {
            What::Switch {
                prev,
                prev_state,
                next: n,
            } => {
                (tid, next, state) = (int(*prev), int(*n), Some(prev_state.letter()));
                "switch"
            }
            What::Waking {
                tid: t,
                waker: w,
                context: c,
            } => {
                (tid, waker, context) = (int(*t), int(*w), Some(c.name()));
                "waking"
            }
            What::Wakeup {
                tid: t,
                waker: w,
                target_cpu,
            } => {
                (tid, waker, target) = (int(*t), int(*w), int(*target_cpu));
                "wakeup"
            }
            What::Placed { tid: t, target_cpu } => {
                (tid, target) = (int(*t), int(*target_cpu));
                "placed"
            }
            What::Migrate { tid: t, target_cpu } => {
                (tid, target) = (int(*t), int(*target_cpu));
                "migrate"
            }
            What::Owed { tid: t, owed } => {
                tid = int(*t);
                (owed_ns, beside_ns) = (Some(owed.own_ns.into()), Some(owed.beside_ns.into()));
                "owed"
            }
            What::Fork { parent, child } => {
                (tid, waker) = (int(*child), int(*parent));
                "fork"
            }
            What::Exit { tid: t } => {
                tid = int(*t);
                "exit"
            }
            What::Move { tid: t, group: g } => {
                (tid, group) = (int(*t), int(*g));
                "move"
            }
            What::Sample { group: g, stat } => {
                group = int(*g);
                stats = [
                    stat.usage_ns,
                    stat.nr_periods,
                    stat.nr_throttled,
                    stat.throttled_ns,
                    stat.nr_bursts,
                    stat.burst_ns,
                ]
                .map(|v| v.map(|v| v as i64));
                "sample"
            }
            What::Request { tid: t, begin } => {
                tid = int(*t);
                if *begin {
                    "request_begin"
                } else {
                    "request_end"
                }
            }
            What::Socket {
                tid: t,
                connection: c,
                op: o,
                bytes: b,
            } => {
                tid = int(*t);
                (connection, op, bytes) = (Some(*c as i64), Some(o.name()), Some(i64::from(*b)));
                "socket"
            }
            What::Others {
                group: g,
                run_ns: ns,
                state: s,
            } => {
                (group, run_ns, state) = (g.and_then(int), Some(*ns as i64), Some(s.letter()));
                "others"
            }
        };
        Cells {
            ts_ns: event.ts_ns,
            ints: [int(event.cpu), tid, next, waker, target, group],
            texts: [Some(kind), state, context, op],
            longs: [
                stats[0], stats[1], stats[2], stats[3], stats[4], stats[5], connection, bytes, run_ns,
                owed_ns, beside_ns,
            ],
        }
    }
}

/// Where the values of a column are kept.
pub(crate) fn place(column: usize) -> Kept {
    let of = |columns: &[Col]| columns.iter().position(|&c| c as usize == column);
    if column == Col::TsNs as usize {
        return Kept::Ts;
    }
    let found = of(&INTS).map(Kept::Int).or(of(&TEXTS).map(Kept::Text));
    found
        .or(of(&LONGS).map(Kept::Long))
        .expect("every column is one of these")
}
