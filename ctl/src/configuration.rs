//! `config check`, `config show` and `reload`.

use weft_config::Config;
use weft_config::control::{ConfigText, Reloaded, Request};
use weft_config::effective_yaml;

use crate::admin::Admin;
use crate::args::{ConfigCommand, Json, Sockets};
use crate::exit::{Exit, failure};
use crate::text;

pub(crate) fn run(sockets: &Sockets, command: ConfigCommand) -> anyhow::Result<u8> {
    match command {
        ConfigCommand::Check { file } => {
            let config = load(&file)?;
            println!("{}: valid: node {}, {}", file.display(), config.node, text::count(config.ports.len(), "port"));
        }
        ConfigCommand::Show { defaults: true, .. } => print!("{}", effective_yaml(&Config::minimal())),
        ConfigCommand::Show { file: Some(file), .. } => print!("{}", effective_yaml(&load(&file)?)),
        ConfigCommand::Show { .. } => {
            let text: ConfigText = Admin::connect(&sockets.socket)?.request(Request::Config)?;
            print!("# {}, as it is in force\n{}", text.file, text.yaml);
        }
    }
    Ok(0)
}

pub(crate) fn reload(sockets: &Sockets, arguments: Json) -> anyhow::Result<u8> {
    let reloaded: Reloaded = Admin::connect(&sockets.socket)?.request(Request::Reload)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&reloaded)?);
    } else if reloaded.changes.is_empty() {
        println!("{}: nothing has changed", reloaded.file);
    } else {
        println!("{}: in force now:", reloaded.file);
        reloaded.changes.iter().for_each(|change| println!("  {change}"));
    }
    Ok(0)
}

fn load(file: &std::path::Path) -> anyhow::Result<Config> {
    Config::load(file).map_err(|errors| failure(Exit::Usage, errors.to_string()))
}
