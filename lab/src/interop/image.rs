//! The kernel and its initramfs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::backend::Backend;
use super::build_directory::BuildDirectory;
use super::packages::Packages;
use super::release::Release;
use super::system_programs;

/// The archive of the files that do not change between runs.
const BASE: &str = "base.cpio";

/// The kernel modules of the image. The modules that they depend on are added.
const MODULES: [&str; 14] = [
    "virtio_pci",
    "virtio_net",
    "virtio_console",
    "rdma_rxe",
    "rdma_ucm",
    "ib_uverbs",
    "crc32_generic",
    "sch_netem",
    "sch_ingress",
    "cls_matchall",
    "act_mirred",
    "ifb",
    "dummy",
    "veth",
];

/// Links into `/usr`, because some packages contain `/bin` and `/lib` and others `/usr/bin` and `/usr/lib`.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// What a virtual machine boots.
pub(crate) struct Image {
    pub(crate) backend: Backend,
    pub(crate) kernel: PathBuf,
    pub(crate) initramfs: PathBuf,
    /// The directory from which the machine's file system was packed. Our side runs programs from it, too.
    pub(crate) root: PathBuf,
    /// The version of Debian's kernel.
    pub(crate) release: String,
}

/// The directory from which a machine's file system is packed.
pub(crate) fn root(build_directory: &BuildDirectory) -> PathBuf {
    build_directory.file("root")
}

impl Image {
    pub(crate) fn new(
        build_directory: &BuildDirectory,
        packages: &Packages,
        backend: Backend,
    ) -> Self {
        let release = packages
            .kernel
            .trim_start_matches("linux-image-")
            .to_owned();
        let kernel = match backend {
            Backend::Qemu => build_directory
                .file("kernel/boot")
                .join(format!("vmlinuz-{release}")),
            Backend::Uml => build_directory.file("linux-as-a-program"),
        };
        Self {
            backend,
            kernel,
            initramfs: build_directory.file("initramfs.cpio"),
            root: root(build_directory),
            release,
        }
    }

    /// Unpacks the kernel and the distribution's programs and packs them into an archive, unless an earlier run did.
    pub(crate) fn build(
        &self,
        build_directory: &BuildDirectory,
        packages: &Packages,
    ) -> Result<(), String> {
        let base = build_directory.file(BASE);
        let contents = base.with_extension("modules");
        let modules = MODULES.join("\n");
        if base.is_file() && fs::read_to_string(&contents).is_ok_and(|it| it == modules) {
            return Ok(());
        }
        println!("unpacking the kernel and the programs");
        self.unpack(build_directory, packages)?;
        pack(&self.root, &base)?;
        fs::write(&contents, modules).map_err(failed("the list of modules"))
    }

    /// Adds the files of a directory to the initramfs.
    pub(crate) fn add(
        &self,
        build_directory: &BuildDirectory,
        overlay: &Path,
    ) -> Result<(), String> {
        let base = build_directory.file(BASE);
        // Our files are few and change, so they are a second archive after the first.
        let packed = build_directory.file("overlay.cpio");
        pack(overlay, &packed)?;
        concatenate(&[&base, &packed], &self.initramfs)
    }

    fn unpack(&self, build_directory: &BuildDirectory, packages: &Packages) -> Result<(), String> {
        let kernel = build_directory.file("kernel");
        fresh_directory(&kernel)?;
        merge(&kernel)?;
        packages.unpack(&packages.kernel, &kernel)?;
        let headers = build_directory.file("headers");
        fresh_directory(&headers)?;
        packages.unpack_headers(&headers)?;
        lay_out_root(&self.root)?;
        for name in &packages.programs {
            packages.unpack(name, &self.root)?;
        }
        if build_directory.debian != Release::OURS {
            self.replace_perftest()?;
        }
        self.add_modules(&kernel)
    }

    /// Replaces perftest by the version of our side: the server of a newer one waits until its client has disconnected,
    /// and that message is delayed (`Way::RunWithDelay`) and lost when the client exits.
    fn replace_perftest(&self) -> Result<(), String> {
        let ours = Packages::fetch(&BuildDirectory::find(Release::OURS)?)?;
        ours.unpack("perftest", &self.root)
    }

    fn add_modules(&self, kernel: &Path) -> Result<(), String> {
        run(tool("depmod").arg("-b").arg(kernel).arg(&self.release))?;
        let modules = Path::new("lib/modules").join(&self.release);
        fs::create_dir_all(self.root.join(&modules)).map_err(failed("modules"))?;
        for list in [
            "modules.order",
            "modules.builtin",
            "modules.builtin.modinfo",
        ] {
            let (from, to) = (kernel.join(&modules), self.root.join(&modules));
            fs::copy(from.join(list), to.join(list)).map_err(failed(list))?;
        }
        let needs = kernel.join(&modules).join("modules.dep");
        let needs = fs::read_to_string(needs).map_err(failed("modules.dep"))?;
        for module in MODULES {
            // A module without a file is built into the kernel.
            for file in with_needed(&needs, module) {
                let copy = self.root.join(&modules).join(file);
                let directory = copy.parent().expect("a file is in a directory");
                fs::create_dir_all(directory).map_err(failed(module))?;
                fs::copy(kernel.join(&modules).join(file), &copy).map_err(failed(module))?;
            }
        }
        run(tool("depmod").arg("-b").arg(&self.root).arg(&self.release))
    }

    /// The directory of the machine's libraries.
    pub(crate) fn libraries(&self) -> PathBuf {
        self.root.join("usr/lib/x86_64-linux-gnu")
    }
}

/// Creates the directories and files that every machine needs.
pub(crate) fn lay_out_root(root: &Path) -> Result<(), String> {
    fresh_directory(root)?;
    for name in ["proc", "sys", "dev", "tmp", "run", "etc", "root"] {
        fs::create_dir(root.join(name)).map_err(failed(name))?;
    }
    merge(root)?;
    let user = "root:x:0:0:root:/root:/bin/sh\n";
    fs::write(root.join("etc/passwd"), user).map_err(failed("passwd"))?;
    fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n").map_err(failed("hosts"))
}

/// A kernel's modules are in `/lib` with Debian 12 and in `/usr/lib` with Debian 13.
pub(crate) fn merge(directory: &Path) -> Result<(), String> {
    for name in MERGED {
        let target = Path::new("usr").join(name);
        fs::create_dir_all(directory.join(&target)).map_err(failed(name))?;
        symlink(target, directory.join(name)).map_err(failed(name))?;
    }
    Ok(())
}

/// The files of a module and of those it needs, from lines such as `a/b.ko: c/d.ko e/f.ko`.
fn with_needed<'a>(needs: &'a str, module: &str) -> Vec<&'a str> {
    let names = |line: &&str| {
        let (file, _) = line.split_once(':').unwrap_or_default();
        let name = file.rsplit('/').next().unwrap_or_default();
        // Module names use underscores where file names use hyphens; the file may be compressed.
        name.replace('-', "_").split('.').next() == Some(module)
    };
    let line = needs.lines().find(names).unwrap_or_default();
    line.split([':', ' '])
        .filter(|file| !file.is_empty())
        .collect()
}

fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", system_programs::search_path());
    command
}

pub(crate) fn pack(directory: &Path, archive: &Path) -> Result<(), String> {
    let unfinished = archive.with_extension("unfinished");
    let file = fs::File::create(&unfinished).map_err(failed("the archive"))?;
    run(Command::new("sh")
        .args(["-c", "find . | cpio --create --format=newc --quiet -R 0:0"])
        .current_dir(directory)
        .stdout(Stdio::from(file)))?;
    fs::rename(&unfinished, archive).map_err(failed("the archive"))
}

/// Concatenates archives. The kernel unpacks them one after the other.
pub(crate) fn concatenate(parts: &[&Path], whole: &Path) -> Result<(), String> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend(fs::read(part).map_err(failed("an archive"))?);
    }
    fs::write(whole, bytes).map_err(failed("the archives"))
}

pub(crate) fn fresh_directory(directory: &Path) -> Result<(), String> {
    if directory.exists() {
        fs::remove_dir_all(directory).map_err(failed("an old directory"))?;
    }
    fs::create_dir_all(directory).map_err(failed("a directory"))
}

pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} failed: {status}")),
        Err(error) => Err(format!("{command:?} can't be started: {error}")),
    }
}

pub(crate) fn failed(what: &str) -> impl Fn(std::io::Error) -> String + use<'_> {
    move |error| format!("{what}: {error}")
}

#[cfg(test)]
mod tests {
    use super::with_needed;

    #[test]
    fn a_module_comes_with_what_it_needs() {
        let needs = "net/ifb.ko.xz:\nib/rdma_rxe.ko: ib/ib-core.ko net/udp.ko\nib/ib-core.ko:\n";
        let rxe = ["ib/rdma_rxe.ko", "ib/ib-core.ko", "net/udp.ko"];
        assert_eq!(with_needed(needs, "rdma_rxe"), rxe);
        assert_eq!(with_needed(needs, "ib_core"), ["ib/ib-core.ko"]);
        assert_eq!(with_needed(needs, "ifb"), ["net/ifb.ko.xz"]);
        assert!(with_needed(needs, "crc32_generic").is_empty());
    }
}
