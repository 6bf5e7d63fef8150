"""Reports: results read from run folders, tables, figures, and which findings hold."""
