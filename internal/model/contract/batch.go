package contract

// RequestApproval asks a human once for a number of calls to come. It has no contract of its own: the contract of the
// capability that is to be called says how many it may ask for (approval.ceiling).
const RequestApproval = "request_approval"

// Batch is the transport of RequestApproval. It puts the yes in force.
const Batch Transport = "batch"
