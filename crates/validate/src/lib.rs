//! Simulated against measured: runs of the bandwidth probe on real kernels, rebuilt row by row.
pub mod measured;
