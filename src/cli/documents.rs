//! Documents generated from the server's flags: completion scripts and manual pages.

use super::{Args, PROGRAM};
use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

/// Returns a script that completes command lines of the server in `shell`.
#[must_use]
pub fn completion(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), PROGRAM, &mut script);
    script
}

/// Returns the manual page of the server, or of the command `name`, in roff.
///
/// # Panics
/// If there is no command `name`.
#[must_use]
pub fn manual(name: Option<&str>) -> Vec<u8> {
    let mut program = Args::command();
    // This call sets the name and the usage of each command for its manual page.
    program.build();
    let command = match name {
        Some(name) => program.find_subcommand(name).cloned().expect("the flags' parser knows the commands"),
        None => program,
    };
    let mut page = Vec::new();
    Man::new(command).render(&mut page).expect("memory takes every write");
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_is_in_the_manual_and_in_each_completion() {
        let completions = [Shell::Bash, Shell::Zsh, Shell::Fish].map(|shell| text(completion(shell)));
        let mut program = Args::command();
        program.build();
        let commands = program.get_subcommands().filter(|command| command.get_name() != "help");
        for command in std::iter::once(&program).chain(commands) {
            let name = (command.get_name() != PROGRAM).then(|| command.get_name());
            let page = text(manual(name));
            assert!(page.contains("\n.SH OPTIONS\n"), "{name:?}");
            for flag in command.get_arguments().filter_map(|argument| argument.get_long()) {
                assert!(page.contains(&flag.replace('-', "\\-")), "{name:?}: {flag}");
                assert!(completions.iter().all(|script| script.contains(flag)), "{name:?}: {flag}");
            }
        }
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).expect("UTF-8")
    }
}
