//! The four questions of `riskgate init`.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use super::answers::{Answers, Args};
use crate::cli::failure::CommandFailure;

const DEFAULT_LISTEN: &str = "127.0.0.1:8080";
const DEFAULT_ACCOUNT: &str = "main";

/// Asks a person, or takes the defaults if there is none.
pub(super) struct Interview {
    is_on_terminal: bool,
}

impl Interview {
    pub fn new() -> Interview {
        Interview { is_on_terminal: io::stdin().is_terminal() && io::stderr().is_terminal() }
    }

    /// Asks what no option has answered.
    pub fn ask(&self, args: &Args) -> Result<Answers, CommandFailure> {
        let listen = match args.listen {
            Some(address) => address,
            None => self.ask_until_valid(
                "1/4  The address for requests; 0.0.0.0:8080 for clients of other machines",
                DEFAULT_LISTEN,
                |text| text.parse().map_err(|_| "expected an address such as 127.0.0.1:8080"),
            )?,
        };
        let optional = |text: &str| Ok(Some(text.trim().to_owned()).filter(|it| !it.is_empty()));
        let upstream = match &args.upstream {
            Some(server) => Some(server.clone()),
            None => self.ask_until_valid(
                "2/4  Your server behind riskgate, such as 127.0.0.1:3000; empty for none",
                "",
                optional,
            )?,
        };
        let sign_up = match (&args.sign_up, &upstream) {
            (Some(path), _) => Some(path.clone()),
            (None, None) => None,
            (None, Some(_)) => self.ask_until_valid(
                "3/4  The path to which its sign-up form is posted, such as /signup; empty for none",
                "",
                optional,
            )?,
        };
        let account = match &args.account {
            Some(name) => name.clone(),
            None => self.ask_until_valid(
                "4/4  The account of the first key",
                DEFAULT_ACCOUNT,
                |text| Ok(text.to_owned()),
            )?,
        };
        Ok(Answers { listen, upstream, sign_up, account })
    }

    fn ask_until_valid<T>(
        &self,
        question: &str,
        default: &str,
        parse: impl Fn(&str) -> Result<T, &'static str>,
    ) -> Result<T, CommandFailure> {
        loop {
            let answer = match self.is_on_terminal {
                true => read_answer(question, default)?,
                false => default.to_owned(),
            };
            match parse(&answer) {
                Ok(value) => return Ok(value),
                Err(expected) if self.is_on_terminal => eprint_line(expected),
                Err(expected) => return Err(CommandFailure::usage(expected)),
            }
        }
    }
}

/// Reads a line; the default if it is empty.
fn read_answer(question: &str, default: &str) -> Result<String, CommandFailure> {
    let shown = if default.is_empty() { String::new() } else { format!(" [{default}]") };
    let _ = write!(io::stderr(), "{question}{shown}: ");
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line)? == 0 {
        return Err(CommandFailure::failed("expected an answer, but the input has ended"));
    }
    let answer = line.trim();
    Ok(if answer.is_empty() { default.to_owned() } else { answer.to_owned() })
}

fn eprint_line(text: &str) {
    let _ = writeln!(io::stderr(), "     {text}");
}
