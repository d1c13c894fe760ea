//! The recipes of docs/ci.md, run as they stand there.

mod dockerfile;
mod document;
mod fresh_system;
mod github;
mod gitlab;
mod python;
mod rust;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use xtask::command::program_beside_us;
use xtask::debian::{self, Package};
use xtask::install::Built;
use xtask::scratch::Scratch;

use crate::package;
use crate::programs::build;
use document::Document;

/// The recipe that takes the archive instead of the package.
const IMAGE: &str = "image";

const DOCUMENT: &str = "docs/ci.md";
const ACTION: &str = "action.yml";

/// The test that the recipes run.
const TEST: &str = "rdma-test.sh";

const PACKAGES: [Package; 2] = [("curl", "/usr/bin/curl"), ("iproute2", "/usr/bin/ip")];

/// Says of a machine with our package that nothing else was replaced.
const REPLACES_NOTHING: &str = include_str!("recipes/replaces-nothing.sh");

/// What a user of a fresh installation tries first.
const FIRST_STEPS: &str = "roci demo\nroci run -- ibv_devices\n";

/// The programs of the test, which an image with nothing else lacks.
const PROGRAMS: &str = "\
apt-get update && apt-get install --yes --no-install-recommends ibverbs-utils rdmacm-utils
";

/// What `docker run IMAGE` is given.
const IN_IMAGE: &str = "CMD [\"sh\", \"rdma-test.sh\"]\n";

/// The archive works wherever it is unpacked, even where the loader can't take the path.
const ANYWHERE: &str = "\
mkdir 'any place'
tar --extract --file rocinante-*.tar.gz --directory 'any place'
'any place/rocinante/bin/roci' demo
'any place/rocinante/bin/roci' run -- ibv_devinfo
";

/// Where to run them.
#[derive(Args)]
pub(crate) struct Options {
    /// A directory with a Debian system that debootstrap made; without it, a copy of this machine's system
    #[arg(long, value_name = "DIR", default_value = "/")]
    system: PathBuf,
}

/// What a recipe does, in two halves.
struct Recipe {
    name: &'static str,
    /// What root prepares.
    as_root: String,
    /// What a user without privileges does then.
    as_user: String,
}

/// Why the recipes can't be run here, if they can't.
pub(crate) fn missing() -> Option<String> {
    if !debian::are_we_root() {
        return Some("only root can make a fresh system".into());
    }
    fresh_system::missing().or_else(|| debian::missing(&PACKAGES))
}

/// Runs them all on a copy of this machine's system.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let system = PathBuf::from("/");
    run(root, &Options { system })
}

/// Runs them all; the first that fails ends it.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    if let Some(missing) = missing() {
        return Err(missing);
    }
    debian::install(&PACKAGES)?;
    let page = Page::read(root)?;
    build(root)?;
    let scratch = Scratch::new("recipes")?;
    let missing = Missing::find();
    let job = prepare(root, &scratch.0, &page.test, &missing)?;
    rust::prepare(root, &job)?;
    python::prepare(&job, &page.python_test)?;
    for recipe in &page.recipes {
        if let Some(missing) = missing.of(recipe) {
            println!("left out: {}, because there is {missing}", recipe.name);
            continue;
        }
        let started = Instant::now();
        fresh_system::run(root, &options.system, &scratch.0, &job, recipe)?;
        let seconds = started.elapsed().as_secs_f32();
        println!("works    {seconds:>5.1} s  {}", recipe.name);
    }
    Ok(())
}

/// Why something can't be made here, if it can't.
struct Missing {
    archive: Option<String>,
    wheel: Option<String>,
}

impl Missing {
    fn find() -> Self {
        let archive = package::no_tarball();
        Self {
            wheel: archive.clone().or_else(package::no_wheel),
            archive,
        }
    }

    fn of(&self, recipe: &Recipe) -> Option<&str> {
        match recipe.name {
            IMAGE | github::NAME => self.archive.as_deref(),
            python::NAME => self.wheel.as_deref(),
            _ => None,
        }
    }
}

/// What of the page is run.
struct Page {
    test: String,
    python_test: String,
    recipes: Vec<Recipe>,
}

impl Page {
    fn read(root: &Path) -> Result<Self, String> {
        let text = |name: &str| {
            fs::read_to_string(root.join(name))
                .map_err(|error| format!("{name} can't be read: {error}"))
        };
        let (page, action) = (Document::new(text(DOCUMENT)?), text(ACTION)?);
        let file = page.block("A plain container", "dockerfile")?;
        let mut container = dockerfile::recipe("container", file)?;
        container.as_root += REPLACES_NOTHING;
        container.as_user.insert_str(0, FIRST_STEPS);
        let file = page.block("An image in three lines", "dockerfile")?;
        let mut image = dockerfile::recipe(IMAGE, &(file.to_owned() + IN_IMAGE))?;
        image.as_root += PROGRAMS;
        image.as_user += ANYWHERE;
        let github = github::recipe(page.block("GitHub", "yaml")?, &action)?;
        let gitlab = gitlab::recipe(page.block("GitLab", "yaml")?)?;
        let python = python::recipe(page.block("pytest", "dockerfile")?)?;
        Ok(Self {
            test: page.block("The test", "sh")?.to_owned(),
            python_test: page.block("pytest", "python")?.to_owned(),
            recipes: vec![container, image, github, gitlab, python, rust::recipe()],
        })
    }
}

/// A directory with what a job finds: the package, the archive, the wheel and the test.
fn prepare(root: &Path, scratch: &Path, test: &str, missing: &Missing) -> Result<PathBuf, String> {
    let failed = |error: io::Error| format!("no job can be prepared: {error}");
    let job = scratch.join("job");
    fs::create_dir(&job).map_err(failed)?;
    fs::write(job.join(TEST), test).map_err(failed)?;
    let roci = program_beside_us("roci")?;
    let built = roci.parent().ok_or("a program is in a directory")?;
    let built = match missing.archive {
        Some(_) => Built::in_directory(built),
        None => Built {
            command: package::build_static(root, built, "")?,
            ..Built::in_directory(built)
        },
    };
    let mut files = vec![package::make(root, &built, scratch, "gzip")?];
    if missing.archive.is_none() {
        files.push(package::make_tarball(root, &built, scratch)?);
        if missing.wheel.is_none() {
            files.push(package::make_wheel(root, &built, scratch)?);
        }
    }
    for file in files {
        let name = file.file_name().ok_or("a file has a name")?;
        fs::rename(&file, job.join(name)).map_err(failed)?;
    }
    Ok(job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipes_run_the_test() {
        let page = Page::read(xtask::workspace_root()).expect("as the page stands");
        let recipes = page.recipes.iter();
        let names: Vec<_> = recipes
            .filter(|recipe| recipe.as_user.contains(TEST))
            .map(|recipe| recipe.name)
            .collect();
        assert_eq!(names, ["container", IMAGE, github::NAME, "GitLab"]);
        assert!(page.test.contains("rping"));
    }
}
