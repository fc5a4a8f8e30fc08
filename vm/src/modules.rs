// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of the guest's drivers are files of their own, and in which order they load.
use crate::error::{Error, Result};
use object::{Object, ObjectSection};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The guest's output leaves through a virtio serial device on the PCI bus.
pub const NEEDED: [&str; 2] = ["virtio_pci", "virtio_console"];
/// Of the network card of a guest that has one.
pub const NETWORK: &str = "virtio_net";
/// Which modules are part of the kernel's image.
pub const BUILT_IN: &str = "modules.builtin";

/// One module, ready for the guest.
pub struct Module {
    pub name: String,
    pub content: Vec<u8>,
}

/// The modules in `folder` (lib/modules/RELEASE) to load for the drivers `needed`, each after what it depends on. Empty
/// when all is built in. A kernel whose package holds no list of what is built in is taken to have it all.
pub fn to_load(folder: &Path, needed: &[&str]) -> Result<Vec<Module>> {
    let Ok(built_in) = std::fs::read_to_string(folder.join(BUILT_IN)) else {
        return Ok(Vec::new());
    };
    let built_in: Vec<String> = built_in.lines().map(|line| name_of(Path::new(line))).collect();
    let mut order = Order {
        files: BTreeMap::new(),
        built_in,
        loaded: Vec::new(),
    };
    collect(&folder.join("kernel"), &mut order.files);
    for name in needed {
        order.load(name)?;
    }
    Ok(order.loaded)
}

struct Order {
    files: BTreeMap<String, PathBuf>,
    built_in: Vec<String>,
    loaded: Vec<Module>,
}

impl Order {
    fn load(&mut self, name: &str) -> Result<()> {
        if self.built_in.iter().any(|known| known == name)
            || self.loaded.iter().any(|module| module.name == name)
        {
            return Ok(());
        }
        let path = self.files.get(name).ok_or_else(|| {
            Error::Machine(format!("the kernel has no driver {name}, which the guest needs"))
        })?;
        let content = read(path)?;
        for needed in depends(&content) {
            self.load(&needed)?;
        }
        self.loaded.push(Module {
            name: name.to_string(),
            content,
        });
        Ok(())
    }
}

/// `kernel/drivers/virtio/virtio-pci.ko.xz` is the module virtio_pci.
fn name_of(path: &Path) -> String {
    let file = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    file.split('.').next().unwrap_or_default().replace('-', "_")
}

fn collect(folder: &Path, files: &mut BTreeMap<String, PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.insert(name_of(&path), path);
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    if path.extension().is_none_or(|extension| extension != "xz") {
        return std::fs::read(path).map_err(|error| Error::file("read it", path, &error));
    }
    let output = std::process::Command::new("xz")
        .args(["-d", "-c"])
        .arg(path)
        .output()
        .map_err(|error| Error::Machine(format!("xz is needed to unpack kernel modules: {error}")))?;
    if !output.status.success() {
        return Err(Error::Machine(format!("{}: xz cannot unpack it", path.display())));
    }
    Ok(output.stdout)
}

/// What the module says it depends on: `depends=a,b` in its section .modinfo.
fn depends(content: &[u8]) -> Vec<String> {
    let Ok(file) = object::File::parse(content) else {
        return Vec::new();
    };
    let Some(Ok(information)) = file.section_by_name(".modinfo").map(|section| section.data()) else {
        return Vec::new();
    };
    information
        .split(|byte| *byte == 0)
        .filter_map(|entry| std::str::from_utf8(entry).ok()?.strip_prefix("depends="))
        .flat_map(|names| names.split(','))
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_named_as_the_kernel_names_it() {
        assert_eq!(
            name_of(Path::new("kernel/drivers/char/virtio-console.ko.xz")),
            "virtio_console"
        );
        assert_eq!(
            name_of(Path::new("kernel/drivers/virtio/virtio_pci.ko")),
            "virtio_pci"
        );
    }

    #[test]
    fn nothing_is_loaded_when_all_is_built_in_and_a_missing_driver_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join(BUILT_IN);
        std::fs::write(
            &list,
            "kernel/drivers/virtio/virtio_pci.ko\nkernel/drivers/char/virtio_console.ko\n",
        )
        .unwrap();
        assert!(to_load(folder.path(), &NEEDED).unwrap().is_empty());
        std::fs::write(&list, "kernel/drivers/virtio/virtio_pci.ko\n").unwrap();
        let error = to_load(folder.path(), &NEEDED).err().unwrap().to_string();
        assert!(error.contains("virtio_console"), "{error}");
    }
}
