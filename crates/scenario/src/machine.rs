//! The machine file: topology, costs of what the kernel and the hardware do, and where each number comes from.
use schemars::JsonSchema;
use serde::Deserialize;

/// A machine: the name of a model ("x6-2"), a path to a file ("./my-machine.toml"), or the model itself.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum MachineChoice {
    Name(String),
    Inline(Box<MachineFile>),
}

/// A plimsoll machine model.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "plimsoll machine model")]
pub struct MachineFile {
    /// Which machine this is, in a line.
    #[serde(default)]
    pub description: String,
    pub topology: TopologyTable,
}

/// How CPUs are arranged. CPU numbers run over sockets, nodes, LLCs, cores, with SMT siblings as `siblings` says.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TopologyTable {
    #[schemars(range(min = 1, max = 64))]
    pub sockets: u32,
    #[schemars(range(min = 1, max = 64))]
    #[serde(default = "one")]
    pub nodes_per_socket: u32,
}

fn one() -> u32 {
    1
}
