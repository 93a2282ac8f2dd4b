//! The files of results. They are opened before the load begins, so that a file that cannot be written is reported
//! early.

use crate::flags::ToldArgs;
use crate::operation::Operation;
use crate::progress::Progress;
use crate::series::Series;
use crate::summary::Summary;
use crate::timeline::Timeline;
use crate::{hgrm, html};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The files of one run.
#[derive(Debug)]
pub(crate) struct Outputs {
    out: Option<Output>,
    report: Option<Output>,
    /// Files for percentile distributions, each with its operation; `None` is the main operation of the run.
    distributions: Vec<(Option<Operation>, Output)>,
}

/// One file of results. It keeps its old content until the results are written.
#[derive(Debug)]
struct Output {
    path: PathBuf,
    file: File,
}

impl Outputs {
    /// Opens the files that the flags name, and creates the timeline of the run. Errors are sentences for the user.
    pub(crate) fn open(told: &ToldArgs) -> Result<(Self, Timeline), String> {
        let distributions = told.hgrm.iter().map(|of| Ok((of.operation, Output::open(&of.path)?)));
        let outputs = Self {
            out: told.out.as_deref().map(Output::open_to_append).transpose()?,
            report: told.report.as_deref().map(Output::open).transpose()?,
            distributions: distributions.collect::<Result<_, String>>()?,
        };
        let series = told.series.as_deref().map(Output::open).transpose()?;
        let series = series.map(|Output { path, file }| {
            // The series is written during the run, so its old content is removed now. The report and the distributions
            // replace the old content of their files at the end.
            empty(&file).map_err(|e| cannot_write(&path, &e))?;
            Ok::<_, String>(Series::new(path, file))
        });
        let progress = Progress::new(told.quiet);
        let timeline = Timeline::new(progress, series.transpose()?, outputs.report.is_some(), &told.pid);
        Ok((outputs, timeline))
    }

    /// Writes the results to all files, even after one file has failed. Returns the first error, as a sentence for the
    /// user.
    pub(crate) fn write(&mut self, summary: &Summary<'_>, json_line: &str) -> Result<(), String> {
        let mut written = vec![summary.history.series.clone()];
        if let Some(out) = &mut self.out {
            written.push(out.write(&format!("{json_line}\n")));
        }
        if let Some(report) = &mut self.report {
            written.push(report.replace(&html::page(summary)));
        }
        for (operation, output) in &mut self.distributions {
            let operation = operation.unwrap_or(summary.main);
            written.push(output.replace(&hgrm::text(&summary.recorder.total(operation).latencies)));
        }
        written.into_iter().collect()
    }
}

impl Output {
    fn open(path: &Path) -> Result<Self, String> {
        Self::open_with(path, OpenOptions::new().write(true))
    }

    fn open_to_append(path: &Path) -> Result<Self, String> {
        Self::open_with(path, OpenOptions::new().append(true))
    }

    fn open_with(path: &Path, options: &mut OpenOptions) -> Result<Self, String> {
        let file = options.create(true).truncate(false).open(path).map_err(|e| cannot_write(path, &e))?;
        Ok(Self { path: path.to_owned(), file })
    }

    fn write(&mut self, text: &str) -> Result<(), String> {
        self.file.write_all(text.as_bytes()).map_err(|e| cannot_write(&self.path, &e))
    }

    /// Replaces the content of the file with `text`.
    fn replace(&mut self, text: &str) -> Result<(), String> {
        empty(&self.file).map_err(|e| cannot_write(&self.path, &e))?;
        self.write(text)
    }
}

/// Empties a file. A pipe or a terminal needs no emptying.
fn empty(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() { file.set_len(0) } else { Ok(()) }
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_content_until_it_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "a longer text").expect("it can be written");
        let mut output = Output::open(&path).expect("it can be opened");
        assert_eq!(std::fs::read_to_string(&path).expect("text"), "a longer text");
        output.replace("short").expect("it can be replaced");
        assert_eq!(std::fs::read_to_string(&path).expect("text"), "short");
        let words = Output::open(&folder.path().join("no/file")).expect_err("no folder");
        assert!(words.starts_with("cannot write ") && words.contains("no/file: "), "{words}");
    }
}
