"""Statistics instead of samples: the penalty E |J(x) tau|^2 from what a task says of its inputs.

Source: TAK, arXiv 2602.17385. With G = E[J'J] the penalty is tau' G tau. G is taken block-diagonal
over layers, and for a linear layer, or a convolution without groups, as the product of

    A = E[a a']   of the layer's inputs a (over rows and positions; with a 1 for the bias),
    B = E[g g']   of what random v ~ N(0, I) on the features sends back to its outputs
                  (over rows, summed over positions),

so that the penalty of the layer is tr(B dW A dW'). Every other block (norms, depthwise
convolutions, what no module of its own uses) has the diagonal of G, exact up to the noise of v.
All tasks merge into one pair of factors per layer, so that a step costs the same however many
there are.

Not seen are products between layers and between positions, and they are most of it: layers pull
the same way. How many times as much they do together is measured with the statistics
(`coherence`, 24 and 63 for two tasks on MiniLM) and multiplies the penalty; vectors then do 3 to
30 times less to other tasks than without a penalty. What is left of them pulls the same way, too,
and adds up in their sum. To see those products by few directions of all layers together comes
closer to E |J tau|^2 of a given tau, but a trained one hides between the directions.

What statistics still say of the samples: A of the first trained layer is the second moment of
embeddings, from which frequent words or mean pictures may be guessed; of few rows the rows
themselves. They are less than samples, not nothing.
"""

from tacl.curvature.measuring import measure
from tacl.curvature.statistics import KroneckerFactors, Statistics, merged

__all__ = ["KroneckerFactors", "Statistics", "measure", "merged"]
