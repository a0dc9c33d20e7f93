package initvm

const (
	elfMachine uint16 = 62             // EM_X86_64
	TaskSize          = 0x7ffffffff000 // TaskSize is where the memory of a process ends
)
