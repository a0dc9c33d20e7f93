(function(){})
