//! A folder that comes from others leads no command elsewhere: links in it, under names that are octorec's own, are
//! refused, and what they lead to stays as it is.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{fail, succeed, tiny_training, tsv};

/// Everything below a folder, by its place, but for locks: what files hold, and where links lead.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_symlink() {
            let to = fs::read_link(&path).unwrap().display().to_string();
            all.insert(path, to.into_bytes());
        } else if path.is_dir() {
            all.extend(tree(&path));
            all.insert(path, Vec::new());
        } else if !path.ends_with(".lock") {
            let bytes = fs::read(&path).unwrap();
            all.insert(path, bytes);
        }
    }
    all
}

/// A command is refused with these words, and changes nothing in the folder.
fn refused(folder: &Path, line: &str, words: &str) {
    let before = tree(folder);
    let message = fail(line);
    assert!(message.contains(words), "{line}: {message}");
    assert!(tree(folder) == before, "{line}: {message}");
}

fn write(path: PathBuf, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn a_list_of_what_moves_reaches_no_file_outside_of_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write(at("home/precious"), "mine");
    write(at("home/.bashrc"), "mine");
    write(at("data/unfinished/link/.bashrc"), "theirs");
    symlink(at("home"), at("data/link")).unwrap();
    write(at("data/unfinished/moving"), r#"{"old": ["link/precious"], "new": ["link/.bashrc"]}"#);
    let line = format!("data generate {} --set data.train_samples=10", at("data").display());
    refused(folder.path(), &line, "moving: lists what moves, but no octorec has begun anything beside it");
    write(at("data/unfinished/.octorec-anew"), "");
    refused(folder.path(), &line, "data/link: is a link, and octorec keeps");
    // Nor do links from within the working folder.
    fs::remove_dir_all(at("data/unfinished/link")).unwrap();
    symlink(at("home"), at("data/unfinished/link")).unwrap();
    fs::remove_file(at("data/link")).unwrap();
    refused(folder.path(), &line, "unfinished/link: is a link, and octorec keeps");
}

#[test]
fn a_working_folder_that_is_a_link_is_not_emptied() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let log = tsv(&at("day_0"), 20);
    write(at("other/journal.json"), "{}");
    write(at("other/within/notes"), "mine");
    fs::create_dir(at("data")).unwrap();
    symlink(at("other"), at("data/unfinished")).unwrap();
    let [log, data] = [log, at("data")].map(|path| path.display().to_string());
    let preprocess = format!("preprocess criteo-kaggle --in {log} --out {data}");
    let words = "unfinished: is a link, and octorec keeps";
    refused(folder.path(), &format!("{preprocess} --force"), words);
    refused(folder.path(), &format!("data generate {data} --set data.train_samples=10"), words);
    // Nor is a file replaced to which a link in it leads, by what goes on with it.
    fs::remove_file(at("data/unfinished")).unwrap();
    fs::create_dir(at("data/unfinished")).unwrap();
    symlink(at("other/journal.json"), at("data/unfinished/journal.json")).unwrap();
    refused(folder.path(), &preprocess, "journal.json: is a link, and octorec keeps");
}

#[test]
fn a_run_removes_and_writes_nothing_through_links_in_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let train = |name: &str| format!("{} --steps 2 --out {}", tiny_training(), at(name).display());
    let resume = format!("train --resume {} --steps 3", at("run").display());
    succeed(&train("prod"));
    succeed(&train("run"));
    write(at("precious"), "mine\n");
    for (name, target) in [(".previous", "prod"), ("best", "prod")] {
        symlink(at(target), at("run").join(name)).unwrap();
        let words = format!("run/{name}: is a link, and octorec keeps");
        refused(folder.path(), &resume, &words);
        refused(folder.path(), &format!("{} --force", train("run")), &words);
        fs::remove_file(at("run").join(name)).unwrap();
    }
    fs::rename(at("run/metrics.jsonl"), at("metrics")).unwrap();
    symlink(at("precious"), at("run/metrics.jsonl")).unwrap();
    refused(folder.path(), &resume, "run/metrics.jsonl: is a link, and octorec keeps");
    fs::remove_file(at("run/metrics.jsonl")).unwrap();
    fs::rename(at("metrics"), at("run/metrics.jsonl")).unwrap();
    // Files that are not there yet are made nowhere else either.
    fs::create_dir(at("new")).unwrap();
    for name in ["metrics.jsonl", "checkpoint.safetensors"] {
        let link = at("new").join(name);
        symlink(at("nowhere"), &link).unwrap();
        refused(folder.path(), &train("new"), &format!("new/{name}: is a link, and octorec keeps"));
        fs::remove_file(link).unwrap();
    }
    // A folder that is a link itself is the user's word.
    symlink("run", at("latest")).unwrap();
    succeed(&format!("train --resume {} --steps 3", at("latest").display()));
    succeed(&format!("{} --force", train("latest")));
    assert!(at("latest").is_symlink() && at("run/checkpoint.safetensors").exists());
}

#[test]
fn files_where_a_replaced_run_would_wait_are_somebodys_own_without_its_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let own = out.join(".previous/config.toml");
    write(own.clone(), "mine");
    let line = format!("{} --steps 2 --out {}", tiny_training(), out.display());
    succeed(&line);
    succeed(&format!("train --resume {} --steps 3", out.display()));
    assert_eq!(fs::read_to_string(&own).unwrap(), "mine");
    refused(folder.path(), &format!("{line} --force"), ".previous/config.toml: move it elsewhere");
    fs::remove_file(&own).unwrap();
    succeed(&format!("{line} --force"));
    assert!(!out.join(".previous").exists());
}
