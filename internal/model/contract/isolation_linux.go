package contract

// UsualIsolation is the level that auto means for read and write, and of waldo's own capabilities.
const UsualIsolation = "namespace"
