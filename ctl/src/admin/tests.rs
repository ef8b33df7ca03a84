use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixListener;

use weft_config::control::{ControlError, HostInfo, Reply, parse_request};

use super::*;

/// A daemon that gives these lines as its answers, then hangs up.
fn daemon(answers: Vec<Vec<u8>>) -> (tempfile::TempDir, PathBuf, std::thread::JoinHandle<Vec<Request>>) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("weftd.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        let mut requests = Vec::new();
        for answer in answers {
            let mut line = Vec::new();
            lines.read_until(b'\n', &mut line).unwrap();
            requests.push(parse_request(&line).unwrap().request);
            (&stream).write_all(&answer).unwrap();
        }
        requests
    });
    (folder, socket, thread)
}

fn page(id: u64, offset: u64, names: &[&str], total: u64) -> Vec<u8> {
    let items = names.iter().map(|name| HostInfo { name: (*name).to_owned(), mac: "02:00:00:00:00:01".to_owned() }).collect();
    encode_line(&Reply::result(id, Page { total, offset, items }), MAX_REPLY).unwrap()
}

fn hosts(socket: &Path) -> anyhow::Result<Vec<String>> {
    let hosts: Vec<HostInfo> = Admin::connect(socket)?.list(|offset| Request::Hosts { offset })?;
    Ok(hosts.into_iter().map(|host| host.name).collect())
}

#[test]
fn a_long_list_is_asked_for_part_by_part() {
    let (_folder, socket, daemon) = daemon(vec![page(1, 0, &["a", "b"], 3), page(2, 2, &["c"], 3)]);
    assert_eq!(hosts(&socket).unwrap(), ["a", "b", "c"]);
    assert_eq!(daemon.join().unwrap(), [Request::Hosts { offset: 0 }, Request::Hosts { offset: 2 }]);
}

#[test]
fn a_daemon_that_repeats_itself_does_not_keep_us() {
    let (_folder, socket, daemon) = daemon(vec![page(1, 0, &["a"], 9), page(2, 0, &["a"], 9)]);
    assert_eq!(hosts(&socket).unwrap(), ["a", "a"]);
    daemon.join().unwrap();
}

#[test]
fn a_refused_configuration_is_an_error_of_the_user_with_the_daemons_hint() {
    let refusal = ControlError::new(ErrorCode::RestartNeeded, "ports[0].interface changed", "restart weftd");
    let (_folder, socket, daemon) = daemon(vec![encode_line(&Reply::<()>::error(Some(1), refusal), MAX_REPLY).unwrap()]);
    let error = Admin::connect(&socket).unwrap().request::<()>(Request::Reload).unwrap_err();
    assert_eq!((crate::exit::of(&error), error.to_string().as_str()), (Exit::Usage, "ports[0].interface changed; restart weftd"));
    daemon.join().unwrap();
}

#[test]
fn a_daemon_that_hangs_up_is_told_apart_from_one_that_answers() {
    let (_folder, socket, daemon) = daemon(vec![b"{\"version\":1".to_vec()]);
    let error = hosts(&socket).unwrap_err();
    assert_eq!(crate::exit::of(&error), Exit::Unreachable);
    assert!(error.to_string().contains("closed the connection"), "{error}");
    daemon.join().unwrap();
}

#[test]
fn a_missing_socket_and_one_without_a_daemon_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("weftd.sock");
    let message = || {
        let error = hosts(&socket).unwrap_err();
        assert_eq!(crate::exit::of(&error), Exit::Unreachable);
        error.to_string()
    };
    assert!(message().contains("no such socket; is weftd running?"), "{}", message());
    drop(UnixListener::bind(&socket).unwrap());
    assert!(message().contains("nobody listens there any more"), "{}", message());
}

#[test]
fn a_forbidden_socket_says_whose_it_is_and_which_key_rules_it() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("weftd.sock");
    drop(UnixListener::bind(&socket).unwrap());
    let error = unreachable(&socket, &io::ErrorKind::PermissionDenied.into(), "--socket", "control.mode");
    assert_eq!(crate::exit::of(&error), Exit::NotPermitted);
    assert!(error.to_string().contains("mode 0") && error.to_string().contains("control.mode"), "{error}");
}
