"""Objects as files on a local drive: `NvmeStorage` with direct I/O, `BufferedStorage` without."""
