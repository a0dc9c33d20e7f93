package main

// oldCalls are those that arm64 never had.
var oldCalls = map[uintptr]call{}
