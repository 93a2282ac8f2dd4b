//! `perf-instructions SCENARIO OPERATIONS` runs a scenario with this number of operations. `perf/instructions/check`
//! runs each scenario twice under valgrind, the second time with twice as many operations. The difference of the two
//! counts is the cost of the operations alone, without the scenario's preparation. Without arguments the program prints
//! the names of the scenarios.

use perf_instructions::scenario::SCENARIOS;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (name, operations) = (arguments.next(), arguments.next().and_then(|number| number.parse::<u64>().ok()));
    let scenario = SCENARIOS.iter().find(|(known, _)| Some(*known) == name.as_deref());
    match (scenario, operations, name) {
        (Some((_, ready)), Some(operations), _) => {
            let mut operation = ready();
            (0..operations).for_each(|_| operation());
            ExitCode::SUCCESS
        }
        (_, _, None) => {
            let names: Vec<_> = SCENARIOS.iter().map(|(name, _)| *name).collect();
            // A closed output is not an error.
            let _ = writeln!(std::io::stdout(), "{}", names.join("\n"));
            ExitCode::SUCCESS
        }
        _ => {
            let _ = writeln!(
                std::io::stderr(),
                "perf-instructions: expected SCENARIO OPERATIONS, or no arguments, to print the scenarios"
            );
            ExitCode::from(2)
        }
    }
}
