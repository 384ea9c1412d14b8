"""One file per owning folder and step; `revision` names are the file names' numbers."""
