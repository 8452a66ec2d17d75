//! `redlatch`: locks in Redis, shared with Java Redisson, from the command line.

mod args;
mod child;
mod events;
mod exit;
mod failure;
mod run;
mod signals;
mod supervise;
mod terminal;
mod url;

use std::process::ExitCode;

use clap::Parser;

use crate::{
    args::{Cli, Command},
    events::{Event, Events},
    exit::Exit,
};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let Command::Run(options) = cli.command;
    let events = Events::new(cli.global.json, cli.global.verbose, &options.name);
    let exit = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let exit = runtime.block_on(run::run(&options, &cli.global.url, &events));
            // A name look-up that hangs on its thread must not hold up the end.
            runtime.shutdown_background();
            exit
        }
        Err(error) => {
            events.emit(&Event::Error { message: format!("cannot start: {error}") });
            Exit::Internal
        }
    };
    ExitCode::from(exit.code())
}
