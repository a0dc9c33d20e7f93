package initvm

const (
	elfMachine uint16 = 183     // EM_AARCH64
	TaskSize          = 1 << 48 // TaskSize is where the memory of a process ends, with the usual page tables
)
