package initvm

const elfMachine uint16 = 62 // EM_X86_64

// TaskSize is where the memory of a process ends.
const TaskSize = 0x7ffffffff000
