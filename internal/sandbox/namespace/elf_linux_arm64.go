package namespace

const elfMachine uint16 = 183 // EM_AARCH64
