package initvm

const elfMachine uint16 = 183 // EM_AARCH64

// TaskSize is where the memory of a process ends, with the usual page tables.
const TaskSize = 1 << 48
