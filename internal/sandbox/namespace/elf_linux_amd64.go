package namespace

const elfMachine uint16 = 62 // EM_X86_64
